//! The table of metrics in the documents.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use plmkit_logs::METRICS;

const FIRST: &str = "| column | unit | meaning | for Prometheus |\n|---|---|---|---|\n";

#[test]
fn the_documents_list_every_metric() {
    let mut table = FIRST.to_owned();
    for metric in METRICS {
        let (column, unit) = (metric.column, metric.unit.symbol());
        let help = metric.help.trim_end_matches('.');
        let star = if metric.in_reports { " *" } else { "" };
        let name = metric.prometheus;
        writeln!(table, "| `{column}`{star} | {unit} | {help} | `{name}` |").expect("memory");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/files.md");
    let text = fs::read_to_string(&path).expect("the document");
    let (before, rest) = text.split_once(FIRST).expect("the table");
    let end = rest.find("\n\n").expect("the end of the table");
    let written = format!("{before}{table}{}", &rest[end + 1..]);
    if env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        fs::write(&path, &written).expect("write");
    }
    let found = fs::read_to_string(&path).expect("the document");
    assert!(found == written, "write it anew: GOLDEN=write");
}
