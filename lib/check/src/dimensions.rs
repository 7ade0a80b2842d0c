//! Whether all files hold vectors of the same shape, and those that their options promise.

use plmkit_contract::{EmbeddingLayout, Quoted, WINDOWS, plural};
use serde_json::{Value, json};

use crate::check::Check;
use crate::files::EmbeddedFile;
use crate::violation::Violations;

/// The columns of `file` beside those that its options promise.
fn add_other_options(file: &EmbeddedFile, other_options: &mut Violations) {
    let EmbeddedFile {
        name,
        provenance,
        layout,
    } = file;
    let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
    let dtype = layout.dtype.to_string();
    for (what, found) in [("columns", json!(columns)), ("store_dtype", json!(dtype))] {
        let option = provenance.options.get(what);
        if let Some(option) = option.filter(|&option| *option != found) {
            other_options.add_file(format_args!(
                "{name}: the metadata say {what} {option}, the file has {found}"
            ));
        }
    }
    let windows = provenance.options.get(WINDOWS).and_then(Value::as_str);
    if layout.stitched != (windows == Some("stitch")) && !provenance.options.is_empty() {
        let windows = windows.unwrap_or("none");
        other_options.add_file(format_args!(
            "{name}: the metadata say windows {}, which does not fit the columns",
            Quoted(windows)
        ));
    }
}

/// The check `dimensions`.
pub(crate) fn check(embeddings: &[EmbeddedFile]) -> Check {
    let (mut different, mut other_options) = <(Violations, Violations)>::default();
    let shapes = embeddings.iter();
    let shapes: Vec<(&str, String)> = shapes
        .map(|file| (file.name.as_str(), shape(&file.layout)))
        .collect();
    let mut usual = "no vectors";
    if let Some(((first, shape), others)) = shapes.split_first() {
        usual = shape;
        for (file, found) in others.iter().filter(|(_, found)| found != shape) {
            different.add_file(format_args!(
                "{file}: expected {shape} as in {first}, found {found}"
            ));
        }
    }
    for file in embeddings {
        add_other_options(file, &mut other_options);
    }
    let files = embeddings.len() as u64;
    let summary = match different.count + other_options.count {
        0 => format!("{}, all with {usual}", plural(files, "file")),
        _ => format!(
            "{} of {files} files differ from the first, {} from their options",
            different.count, other_options.count
        ),
    };
    let kinds = [("different", different), ("other_options", other_options)];
    Check::judged("dimensions", summary, [("files", files)], kinds)
}

/// The columns after the key in words.
fn shape(layout: &EmbeddingLayout) -> String {
    let columns = layout.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| column.with_shape(layout.dim))
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
    use plmkit_contract::{Column, Provenance, StoreDtype};

    use super::*;

    #[test]
    fn columns_dimension_and_type_must_agree() {
        let columns = |names: &[&str]| -> Vec<Column> {
            let columns = names.iter().map(|name| name.parse());
            columns.collect::<Result<_, _>>().expect("columns")
        };
        let first = EmbeddingLayout {
            columns: columns(&["mean_6"]),
            dim: 320,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: plmkit_contract::Labels::default(),
        };
        let mut others = vec![first.clone(); 5];
        others[1].dim = 640;
        others[2].dtype = StoreDtype::F16;
        others[3].columns = columns(&["mean_6", "max_6"]);
        others[4].stitched = true;
        let layouts = std::iter::once(first).chain(others);
        let files = ["a", "b", "c", "d", "e", "f"].into_iter().zip(layouts);
        let files = files.map(|(name, layout)| EmbeddedFile {
            name: name.to_owned(),
            provenance: Provenance::new("gpu-embed", Vec::new()),
            layout,
        });
        let check = check(&files.collect::<Vec<_>>());
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
