//! Whether all files hold vectors of the same shape.

use plmkit_contract::{EmbeddingLayout, plural};

use crate::check::Check;
use crate::violation::Violations;

/// The shape of the first file, and the files that have another.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    first: Option<(String, String)>, // (file, shape)
    files: u64,
    different: Violations,
}

impl Dimensions {
    pub(crate) fn add(&mut self, file: &str, layout: &EmbeddingLayout) {
        self.files += 1;
        let shape = shape(layout);
        match &self.first {
            None => self.first = Some((file.to_owned(), shape)),
            Some((_, expected)) if *expected == shape => {}
            Some((first, expected)) => {
                self.different.add_file(format_args!(
                    "{file}: expected {expected} as in {first}, found {shape}"
                ));
            }
        }
    }

    pub(crate) fn finish(self) -> Check {
        let shape = self
            .first
            .map_or_else(|| "no vectors".to_owned(), |(_, shape)| shape);
        let summary = match self.different.count {
            0 => format!("{}, all with {shape}", plural(self.files, "file")),
            different => format!("{different} of {} files differ from the first", self.files),
        };
        let different = [("different", self.different)];
        Check::judged("dimensions", summary, [("files", self.files)], different)
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
        dimensions.add("a", &first);
        for (file, layout) in ["b", "c", "d", "e", "f"].into_iter().zip(&others) {
            dimensions.add(file, layout);
        }
        let check = dimensions.finish();
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
