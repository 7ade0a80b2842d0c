//! `report --html`.

use std::fs;

use crate::case::{Case, fixture, text};
use crate::common::{assert_failed, visible};

fn logs() -> Case {
    let case = Case::new();
    for name in ["events.jsonl", "gpu.csv"] {
        fs::copy(fixture(name), case.path(name)).unwrap();
    }
    case
}

#[test]
fn the_page_stands_alone_and_says_what_the_report_says() {
    let case = logs();
    let output = case.run("report --events events.jsonl --gpu gpu.csv --out r.json --html r.html");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = case.read("r.html");
    for part in [
        "<h1>Embedding runs</h1>",
        "Verdict: mild.",
        "gpu 0 (Fake, 0)",
        "it was idle part of the time",
        "<td class=\"number\">2,890</td>",
        "Throughput over the run.",
        "GPU utilization over the recording; shaded: runs at work.",
        "How long the device waited for a batch.",
        "How full the batches were",
        "prefers-color-scheme: dark",
        "@media print",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(
        page.matches("<svg ").count(),
        page.matches("</svg>").count()
    );
    // Nothing is fetched and nothing runs: the only address is the name of SVG.
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    for what in [
        "http:", "https:", "<script", "<link", "<img", "url(", "@import",
    ] {
        assert!(!elsewhere.contains(what), "{what}");
    }
}

#[test]
fn there_is_a_page_where_hardly_anything_is_known() {
    let case = logs();
    case.write("none.jsonl", "");
    for args in [
        "--events none.jsonl",
        "--gpu gpu.csv",
        "--events events.jsonl",
    ] {
        let output = case.run(&format!("report {args} --out r.json --html r.html"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(case.read("r.html").ends_with("</html>\n"));
    }
}

#[test]
fn a_page_is_there_whole_or_not_at_all() {
    let case = logs();
    let before = visible(&case.path(""));
    let same = case.run("report --events events.jsonl --out r --html ./r");
    assert_failed(&same, 2, "are the same file");
    let input = case.run("report --events events.jsonl --out r --html events.jsonl");
    assert_failed(&input, 2, "are the same file");
    assert_eq!(visible(&case.path("")), before);
    let nowhere =
        case.run("report --quiet --events events.jsonl --out r.json --html no/such/r.html");
    assert_failed(
        &nowhere,
        73,
        "no/such/r.html: cannot create: no such file or directory",
    );
}
