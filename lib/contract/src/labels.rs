//! Columns by which a person knows a row.

use arrow::datatypes::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

/// The option, and the column, that names the sample. It is one for all rows of a file.
pub const SAMPLE: &str = "sample";

/// The option, and the column, with the rest of the FASTA header.
pub const DESCRIPTION: &str = "description";

/// Which label columns a batches file or an embeddings file has: those that were asked for when it was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Whether each row names its sample.
    pub sample: bool,
    /// Whether each row has the description of its record, null where there is none.
    pub description: bool,
}

impl Labels {
    /// Those among the columns of `schema`.
    pub fn from_schema(schema: &Schema) -> Self {
        let has = |name| schema.column_with_name(name).is_some();
        Self {
            sample: has(SAMPLE),
            description: has(DESCRIPTION),
        }
    }

    /// Their columns, in the order in which files have them.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        let sample = Field::new(SAMPLE, DataType::Utf8, false);
        let description = Field::new(DESCRIPTION, DataType::Utf8, true);
        let fields = [(self.sample, sample), (self.description, description)];
        fields
            .into_iter()
            .filter_map(|(has, field)| has.then_some(field))
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        self.fields().count()
    }
}
