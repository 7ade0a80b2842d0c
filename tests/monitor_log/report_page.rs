//! `report --html`.

use crate::case::{Case, assert_contains};
use crate::common::{assert_failed, visible};

#[test]
fn the_page_is_self_contained_and_has_the_content_of_the_report() {
    let case = Case::with_logs();
    case.report("--events events.jsonl --gpu gpu.csv --html r.html");
    let page = case.read("r.html");
    for part in [
        "<h1>Embedding runs</h1>",
        "verdict: mild</span>",
        "gpu 0 (Fake, 0, GPU-0)",
        "it was idle part of the time",
        ">2,890</td>",
        "<figcaption>tokens/s, up to ",
        "utilization in %, up to 100, over ",
        "<title>a</title>",
        "prefers-color-scheme: dark",
        "@media print",
    ] {
        assert_contains(&page, part);
    }
    let count = |part: &str| page.matches(part).count();
    assert_eq!(count("<svg "), count("</svg>"));
    let external = [
        "http:", "https:", "<script", "<link", "<img", "url(", "@import",
    ];
    for part in external {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn there_is_a_page_even_if_hardly_anything_is_known() {
    let case = Case::with_logs();
    case.write("none.jsonl", "");
    for args in [
        "--events none.jsonl",
        "--gpu gpu.csv",
        "--events events.jsonl",
    ] {
        case.report(&format!("{args} --html r.html"));
        assert!(case.read("r.html").ends_with("</html>\n"));
    }
}

#[test]
fn a_page_overwrites_no_input_and_no_other_output() {
    let case = Case::with_logs();
    let before = visible(&case.path(""));
    for (html, code, message) in [
        ("./r", 2, "are the same file"),
        ("events.jsonl", 2, "are the same file"),
        (
            "no/such/r.html",
            73,
            "no/such/r.html: cannot create: no such file or directory",
        ),
    ] {
        assert_eq!(visible(&case.path("")), before);
        let args = format!("report --quiet --events events.jsonl --out r --html {html}");
        assert_failed(&case.run(&args), code, message);
    }
}
