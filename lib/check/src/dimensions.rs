//! Whether all files hold vectors of the same shape, and those that their options promise.

use plmkit_contract::{EmbeddingLayout, Provenance, Quoted, WINDOWS, plural};
use serde_json::{Value, json};

use crate::check::Check;
use crate::majority::majority;
use crate::violation::Violations;

/// The shapes of the files.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    files: Vec<FileShape>,
    /// Files whose columns are not those of their options.
    other_options: Violations,
}

#[derive(Debug)]
struct FileShape {
    file: String,
    shape: String,
}

impl Dimensions {
    /// Adds a file.
    pub(crate) fn add(&mut self, file: &str, provenance: &Provenance, layout: &EmbeddingLayout) {
        self.files.push(FileShape {
            file: file.to_owned(),
            shape: shape(layout),
        });
        let columns: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
        let dtype = layout.dtype.to_string();
        for (name, found) in [("columns", json!(columns)), ("store_dtype", json!(dtype))] {
            let option = provenance.options.get(name);
            if let Some(option) = option.filter(|&option| *option != found) {
                self.other_options.add_file(format_args!(
                    "{file}: the metadata say {name} {option}, the file has {found}"
                ));
            }
        }
        let windows = provenance.options.get(WINDOWS).and_then(Value::as_str);
        if layout.stitched != (windows == Some("stitch")) && !provenance.options.is_empty() {
            let windows = windows.unwrap_or("none");
            self.other_options.add_file(format_args!(
                "{file}: the metadata say windows {}, which does not fit the columns",
                Quoted(windows)
            ));
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
        self.other_options.merge(other.other_options);
    }

    /// The check `dimensions`.
    pub(crate) fn finish(self) -> Check {
        let mut different = Violations::default();
        let mut shape = "no vectors";
        if let Some(most) = majority(&self.files, |a, b| a.shape == b.shape) {
            shape = &most.typical.shape;
            let place = most.place(&most.typical.file);
            for FileShape { file, shape: found } in &most.odd {
                different.add_file(format_args!(
                    "{file}: expected {shape} {place}, found {found}"
                ));
            }
        }
        let files = self.files.len() as u64;
        let summary = match different.count + self.other_options.count {
            0 => format!("{}, all with {shape}", plural(files, "file")),
            _ => format!(
                "{} of {files} files differ from the others, {} from their options",
                different.count, self.other_options.count
            ),
        };
        let kinds = [
            ("different", different),
            ("other_options", self.other_options),
        ];
        Check::judged("dimensions", summary, [("files", files)], kinds)
    }
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
    use plmkit_contract::{Column, StoreDtype};

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
        let mut dimensions = Dimensions::default();
        let made = Provenance::new("gpu-embed", Vec::new());
        dimensions.add("a", &made, &first);
        for (file, layout) in ["b", "c", "d", "e", "f"].into_iter().zip(&others) {
            dimensions.add(file, &made, layout);
        }
        let check = dimensions.finish();
        assert_eq!((check.counts["files"], check.counts["different"]), (6, 4));
        assert_eq!(
            check.violations[0].to_string(),
            "c: expected mean_6 (320) in f32 as in a and 1 more, found mean_6 (640) in f32"
        );
        assert_eq!(
            check.violations[3].to_string(),
            "f: expected mean_6 (320) in f32 as in a and 1 more, found mean_6 (320) in f32, stitched from windows"
        );
    }
}
