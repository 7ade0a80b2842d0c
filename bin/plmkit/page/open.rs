//! How the embeddings are opened.

use std::path::Path;

use plmkit_contract::path_text;
use plmkit_page::Page;
use serde_json::Value;

use super::samples::PageSample;

/// Adds lines of code that open the embeddings at `place`, with their columns.
pub(super) fn add(page: &mut Page, place: &Path, samples: &[PageSample]) {
    let with_rows = samples.iter().filter(|sample| sample.line.rows > 0);
    let mut reports =
        with_rows.filter_map(|sample| Some((&sample.line.name, sample.report.as_ref()?)));
    let Some((name, report)) = reports.next() else {
        return;
    };
    let out = path_text(place);
    let sample = if reports.next().is_some() { "*" } else { name };
    let files = format!("{out}/{sample}/embeddings/*.parquet");
    let columns = report.listed.columns.iter().map(|column| {
        let entry = |name: &str| column.others.get(name);
        let text = |name: &str| entry(name).and_then(Value::as_str).unwrap_or_default();
        let width = entry("dimension")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        let (of, dtype) = (text("of"), text("type"));
        format!("{}: {width} values of {dtype} for each {of}", column.name)
    });
    page.heading("Open the embeddings");
    page.list(columns);
    let column = report
        .listed
        .columns
        .first()
        .map_or("", |column| &column.name);
    // To DuckDB, such a folder is a pattern.
    let sql = if out.contains(['*', '?', '[', '\\', '\'']) {
        String::new()
    } else {
        format!("-- DuckDB\nSELECT id, {column} FROM '{files}';\n\n")
    };
    page.code(&format!(
        "# Python, verified\nimport plmkit\ntable = plmkit.read({out:?})\nids, vectors = table[\"id\"], table[\"{column}\"]\n\n\
         # Polars\nimport polars\nrows = polars.read_parquet({files:?})\n\n{sql}\
         # R\nrows <- arrow::open_dataset(Sys.glob({files:?}))\n\n\
         # A shell\nquery-embeddings select {shell} --id ID --out rows.parquet",
        shell = shlex::try_quote(&out).unwrap_or_default(),
    ));
}
