//! Whether all files hold vectors of the same shape, and those that their options promise.

use plmkit_contract::{EmbeddingLayout, Quoted, WINDOWS};
use serde_json::json;

use crate::check::Tally;
use crate::files::EmbeddedFile;
use crate::violation::FILE;

/// The check `dimensions`.
pub(crate) fn check(embeddings: &[EmbeddedFile], tally: &mut Tally) {
    let shapes = embeddings.iter().map(|file| shape(&file.layout));
    let shapes: Vec<String> = shapes.collect();
    for (file, found) in embeddings.iter().zip(&shapes) {
        let (name, expected, first) = (&file.name, &shapes[0], &embeddings[0].name);
        if found != expected {
            let problem = format_args!("{name}: expected {expected} as in {first}, found {found}");
            tally.add("different", FILE, problem);
        }
        compare_with_options(file, tally);
    }
    tally.count("files", embeddings.len() as u64);
    if tally.violations("different") + tally.violations("other_options") == 0 {
        let usual = shapes.first().map_or("no vectors", String::as_str);
        tally.summary = Some(format!("{{files:file}}, all with {usual}"));
    }
}

/// Compares the columns of a file with those that its options promise.
fn compare_with_options(file: &EmbeddedFile, tally: &mut Tally) {
    let EmbeddedFile {
        name,
        provenance,
        layout,
        ..
    } = file;
    let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
    let dtype = layout.dtype.to_string();
    for (what, found) in [("columns", json!(columns)), ("store_dtype", json!(dtype))] {
        let option = provenance.options.get(what);
        if let Some(option) = option.filter(|&option| *option != found) {
            let problem =
                format_args!("{name}: the metadata say {what} {option}, the file has {found}");
            tally.add("other_options", FILE, problem);
        }
    }
    let windows = provenance.text_option(WINDOWS);
    if layout.stitched != (windows == Some("stitch")) && !provenance.options.is_empty() {
        let windows = Quoted(windows.unwrap_or("none"));
        let problem = format_args!(
            "{name}: the metadata say windows {windows}, which does not fit the columns"
        );
        tally.add("other_options", FILE, problem);
    }
}

/// The columns after the key in words.
fn shape(layout: &EmbeddingLayout) -> String {
    let columns = layout.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| column.with_shape(layout.widths()))
        .collect();
    let windows = if layout.stitched {
        ", stitched from windows"
    } else {
        ""
    };
    format!("{} in {}{windows}", columns.join(", "), layout.dtype)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Provenance, StoreDtype};

    use super::*;

    #[test]
    fn columns_dimension_and_type_must_agree() {
        let file = |name, columns: &[&str]| {
            let mut file =
                EmbeddedFile::of(name, Provenance::new("gpu-embed", Vec::new()), columns);
            file.layout.dim = 320;
            file
        };
        let mut files = ["a", "b", "c", "d"]
            .map(|name| file(name, &["mean_6"]))
            .to_vec();
        files[2].layout.dim = 640;
        files[3].layout.dtype = StoreDtype::F16;
        files.push(file("e", &["mean_6", "max_6"]));
        files.push(file("f", &["mean_6"]));
        files[5].layout.stitched = true;
        let mut tallies = crate::check::Tallies::default();
        check(&files, tallies.of("dimensions"));
        let check = tallies.result("dimensions");
        assert_eq!((check.counts["files"], check.counts["different"]), (6, 4));
        assert_eq!(
            check.violations[0].to_string(),
            "c: expected mean_6 (320) in f32 as in a, found mean_6 (640) in f32"
        );
        assert_eq!(
            check.violations[3].to_string(),
            "f: expected mean_6 (320) in f32 as in a, found mean_6 (320) in f32, stitched from windows"
        );
    }
}
