//! Columns that label a row for people.

use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

/// The name of the option and the column with the sample. All rows of a file have the same sample.
pub const SAMPLE: &str = "sample";

/// Whether a name can be that of a sample: up to 200 letters, digits, `_`, `-` and `.`, the first no `-` or `.`. It may become that of
/// a folder.
pub fn is_sample_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=200).contains(&name.len()) && !name.starts_with(['-', '.']) && name.bytes().all(allowed)
}

/// The name of the option and the column with the rest of the FASTA header.
pub const DESCRIPTION: &str = "description";

/// The label columns of a batches or embeddings file, as requested from `pack-batches`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Whether there is a column `sample`.
    pub sample: bool,
    /// Whether there is a column `description`, null for a record without one.
    pub description: bool,
}

impl Labels {
    /// Finds the label columns of `schema`.
    pub fn from_schema(schema: &Schema) -> Self {
        let has = |name| schema.column_with_name(name).is_some();
        Self {
            sample: has(SAMPLE),
            description: has(DESCRIPTION),
        }
    }

    /// Returns the label fields in file order.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        let sample = Field::new(SAMPLE, DataType::Utf8, false);
        let description = Field::new(DESCRIPTION, DataType::Utf8, true);
        let fields = [(self.sample, sample), (self.description, description)];
        fields
            .into_iter()
            .filter_map(|(has, field)| has.then_some(field))
    }

    /// Returns the number of label columns.
    pub(crate) fn count(self) -> usize {
        self.fields().count()
    }
}
