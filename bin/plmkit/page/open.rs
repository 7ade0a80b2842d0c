//! How the embeddings are opened.

use std::path::Path;

use plmkit_contract::{DATASET_FILE, ListedDataset};
use plmkit_dataset::{SampleVerdict, VectorMap};
use plmkit_kit::{LIST_SHOWN, one_line, path_text};
use plmkit_page::Page;
use plmkit_programs::validate_embeddings::shown;
use plmkit_store::read_sealed;

use crate::judged_sample::JudgedSample;
use crate::params::samples_with_embeddings;

/// Adds lines of code that open the embeddings at `place`, with their columns: that of the map, if there is one. `out` is where they are
/// now.
pub(super) fn add(
    page: &mut Page,
    place: &Path,
    out: &Path,
    samples: &[JudgedSample],
    map: Option<&VectorMap>,
) {
    let with_rows = samples.iter().filter(|sample| sample.line.rows > 0);
    let mut reports =
        with_rows.filter_map(|sample| Some((&sample.line.name, sample.report.as_ref()?)));
    let Some((name, report)) = reports.next() else {
        return;
    };
    page.heading("Open the embeddings");
    // One sample has a folder of its own.
    let several = samples.len() > 1;
    let mut others = samples_with_embeddings(out);
    for sample in samples {
        others.remove(&sample.line.name);
    }
    others.retain(|_| several);
    let has_passed = |name: &String| {
        let listed = read_sealed::<ListedDataset>(&out.join(name).join(DATASET_FILE));
        listed.is_ok_and(|listed| listed.passed())
    };
    let is_done = |sample: &JudgedSample| {
        use SampleVerdict::{Empty, Pass};
        matches!(sample.verdict(), Some(Pass | Empty))
    };
    if !samples.iter().all(is_done) || !others.iter().all(has_passed) {
        page.paragraph("Once all samples in the folder have passed, also those of earlier runs, this says how: until then, readers would mix sound rows with others.");
        return;
    }
    if !others.is_empty() {
        let names = one_line(&Vec::from_iter(others).join(" "), LIST_SHOWN);
        page.paragraph(&format!(
            "Samples of earlier runs are in the folder, too, and these lines read them: {names}"
        ));
    }
    let (out, samples) = if several {
        (place.to_owned(), place.join("*"))
    } else {
        (place.join(name), place.join(name))
    };
    let [out, files] = [out, samples.join("embeddings/*.parquet")].map(|path| path_text(&path));
    if place.is_relative() {
        page.paragraph("Relative paths are as they were given when this page was made.");
    }
    let columns = report.listed.columns.iter().map(shown);
    page.list(columns);
    let first = report.listed.columns.first();
    let column = map
        .map(|map| &map.column)
        .or(first.map(|first| &first.name));
    let column = column.map_or("", String::as_str);
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
