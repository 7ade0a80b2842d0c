//! Whether all files hold vectors of the same shape.

use plmkit_contract::{Column, StoreDtype};

use crate::check::Check;
use crate::offender::{Offender, Offenders};

/// The shape of the first file, and the files that have another.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    first: Option<(String, String)>, // (file, shape)
    files: u64,
    different: Offenders,
}

impl Dimensions {
    pub(crate) fn see(&mut self, file: &str, columns: &[Column], dim: usize, dtype: StoreDtype) {
        self.files += 1;
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let shape = format!("{} of {dim} {dtype} values", names.join(", "));
        match &self.first {
            None => self.first = Some((file.to_owned(), shape)),
            Some((_, expected)) if *expected == shape => {}
            Some((first, expected)) => {
                self.different.add(|| {
                    Offender::file(format!(
                        "{file}: expected {expected} as in {first}, found {shape}"
                    ))
                });
            }
        }
    }

    pub(crate) fn finish(self) -> Check {
        let shape = self
            .first
            .map_or_else(|| "no vectors".to_owned(), |(_, shape)| shape);
        let summary = match self.different.count {
            0 => format!("{} files, all with {shape}", self.files),
            different => format!("{different} of {} files differ from the first", self.files),
        };
        let different = [("different", self.different)];
        Check::judged("dimensions", summary, [("files", self.files)], different)
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Pool, VectorColumn};

    use super::*;

    #[test]
    fn columns_dimension_and_type_must_agree() {
        let mean = Column::Pooled(VectorColumn {
            pool: Pool::Mean,
            layer: 6,
        });
        let max = Column::Pooled(VectorColumn {
            pool: Pool::Max,
            layer: 6,
        });
        let mut dimensions = Dimensions::default();
        dimensions.see("a", &[mean], 320, StoreDtype::F32);
        dimensions.see("b", &[mean], 320, StoreDtype::F32);
        dimensions.see("c", &[mean], 640, StoreDtype::F32);
        dimensions.see("d", &[mean], 320, StoreDtype::F16);
        dimensions.see("e", &[mean, max], 320, StoreDtype::F32);
        let check = dimensions.finish();
        assert_eq!((check.counts["files"], check.counts["different"]), (5, 3));
        assert_eq!(
            check.offenders[0].to_string(),
            "c: expected mean_6 of 320 f32 values as in a, found mean_6 of 640 f32 values"
        );
    }
}
