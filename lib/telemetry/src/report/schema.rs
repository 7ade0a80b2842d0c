//! The form of a report, for programs that read it. What is checked in is what the structs say.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::Report;

/// [`Outcome`](crate::event::Outcome), or null.
pub(super) fn outcome(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": ["done", "stopped", "failed", null] })
}

#[test]
fn the_schema_that_is_checked_in_is_that_of_the_structs() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/schemas/monitor-report.schema.json"
    );
    // As it is written: a value that is not known is null, and never left out.
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Report>();
    schema.insert("title".to_owned(), "Report of monitor-log report".into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "{path}");
}
