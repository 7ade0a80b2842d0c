//! The table of metrics in the documents.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use plmkit_logs::METRICS;

#[test]
fn the_documents_list_every_metric() {
    let mut table = "column,unit,meaning,prometheus,in_reports\n".to_owned();
    for metric in METRICS {
        let (column, unit) = (metric.column, metric.unit);
        let help = metric.help.trim_end_matches('.');
        let (name, in_reports) = (metric.prometheus, metric.in_reports);
        writeln!(table, "{column},{unit},\"{help}\",{name},{in_reports}").expect("memory");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/samples.csv");
    if env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        fs::write(&path, &table).expect("write");
    }
    let found = fs::read_to_string(&path).expect("the document");
    assert!(found == table, "write it anew: GOLDEN=write");
}
