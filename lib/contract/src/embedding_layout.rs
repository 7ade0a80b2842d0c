//! The layout of an embeddings file.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::fields::check_columns;
use crate::row_key::{KEY_COLUMNS, N_WINDOWS, key_fields};
use crate::{AMINO_ACIDS, Column, Labels, StoreDtype, VOCABULARY, Widths};
use plmkit_kit::Quoted;
use serde::{Deserialize, Serialize};

/// The columns of an embeddings file: the key, `n_windows` u32 if windows were stitched, labels, and computed columns.
///
/// ```
/// use plmkit_contract::{EmbeddingLayout, Labels, StoreDtype};
/// let layout = EmbeddingLayout {
///     columns: ["mean_6", "contacts"].map(|name| name.parse().unwrap()).to_vec(),
///     dim: 320,
///     logits: 33,
///     dtype: StoreDtype::F32,
///     stitched: false,
///     labels: Labels::default(),
/// };
/// assert_eq!(EmbeddingLayout::from_schema(&layout.schema()).unwrap(), layout);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingLayout {
    /// Computed columns, in file order.
    pub columns: Vec<Column>,
    /// The number of values in a vector of the model.
    pub dim: usize,
    /// The number of values in the logits of a residue; [`VOCABULARY`] without such a column.
    pub logits: usize,
    /// The type of a value.
    pub dtype: StoreDtype,
    /// Whether windows were stitched, so that each row is a whole protein. The file then has a column [`N_WINDOWS`].
    pub stitched: bool,
    /// The label columns, before the computed ones.
    pub labels: Labels,
}

impl EmbeddingLayout {
    /// Parses the layout of a schema. The error describes what is wrong.
    pub fn from_schema(schema: &Schema) -> Result<Self, String> {
        let fields = schema.fields();
        let stitched = fields
            .get(KEY_COLUMNS.len())
            .is_some_and(|field| field.name() == N_WINDOWS);
        let labels = Labels::from_schema(schema);
        let computed = fields.get(keys(stitched, labels)..).unwrap_or_default();
        let first = computed
            .first()
            .ok_or_else(|| "expected at least one vector column, found none".to_owned())?;
        let DataType::FixedSizeList(value, dim) = first.data_type() else {
            return Err(format!("column '{}' is no vector", first.name()));
        };
        let dtype = match value.data_type() {
            DataType::Float32 => StoreDtype::F32,
            DataType::Float16 => StoreDtype::F16,
            other => return Err(format!("column '{}' holds {other} values", first.name())),
        };
        let columns = computed
            .iter()
            .map(|field| {
                let name = field.name();
                name.parse().map_err(|()| {
                    format!(
                        "column '{name}' is not named <pool>_<layer>, residues_<layer>, logits, contacts, log_probs or log_likelihood"
                    )
                })
            })
            .collect::<Result<Vec<Column>, String>>()?;
        let logits = columns.iter().position(|column| *column == Column::Logits);
        let logits = logits.and_then(|place| logits_width(computed[place].data_type()));
        let layout = Self {
            columns,
            dim: *dim as usize,
            logits: logits.unwrap_or(VOCABULARY),
            dtype,
            stitched,
            labels,
        };
        check_columns(schema, &layout.schema()).map(|()| layout)
    }

    /// Returns all columns with their types.
    pub fn schema(&self) -> SchemaRef {
        let mut fields = Vec::from(key_fields());
        if self.stitched {
            fields.push(Field::new(N_WINDOWS, DataType::UInt32, false));
        }
        fields.extend(self.labels.fields());
        let computed = self.columns.iter().map(|&column| {
            let may_lack = column == Column::LogLikelihood;
            Field::new(column.to_string(), self.column_type(column), may_lack)
        });
        fields.extend(computed);
        Arc::new(Schema::new(fields))
    }

    /// Returns the number of values in the vectors.
    pub fn widths(&self) -> Widths {
        Widths {
            dim: self.dim,
            logits: self.logits,
        }
    }

    /// Returns the number of columns before the computed ones.
    pub fn keys(&self) -> usize {
        keys(self.stitched, self.labels)
    }

    /// Returns the places of the computed columns of these `names`, or of all if there are no names. The error names a column that is
    /// missing.
    pub fn places(&self, names: &[String]) -> Result<Vec<usize>, String> {
        if names.is_empty() {
            return Ok((0..self.columns.len()).collect());
        }
        let columns: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        let places = names.iter().map(|name| {
            let place = columns.iter().position(|column| column == name);
            place.ok_or_else(|| {
                let columns = columns.join(", ");
                format!("expected a column {}, found {columns}", Quoted(name))
            })
        });
        places.collect()
    }

    fn column_type(&self, column: Column) -> DataType {
        let item = |kind| Arc::new(Field::new_list_field(kind, false));
        let vector = |values: usize| {
            let values = i32::try_from(values).unwrap_or(i32::MAX);
            DataType::FixedSizeList(item(self.dtype.arrow()), values)
        };
        match column {
            Column::Pooled { .. } => vector(self.dim),
            Column::Residues(_) => DataType::List(item(vector(self.dim))),
            Column::Logits => DataType::List(item(vector(self.logits))),
            Column::Contacts => DataType::List(item(self.dtype.arrow())),
            Column::LogProbs => DataType::List(item(vector(AMINO_ACIDS.len()))),
            // One value, which needs no narrow type.
            Column::LogLikelihood => DataType::Float32,
        }
    }
}

fn logits_width(kind: &DataType) -> Option<usize> {
    let DataType::List(item) = kind else {
        return None;
    };
    match item.data_type() {
        DataType::FixedSizeList(_, values) => usize::try_from(*values).ok(),
        _ => None,
    }
}

fn keys(stitched: bool, labels: Labels) -> usize {
    KEY_COLUMNS.len() + usize::from(stitched) + labels.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_schema;

    #[test]
    fn foreign_columns_are_named() {
        let error =
            EmbeddingLayout::from_schema(&shard_schema()).expect_err("a shard holds no vectors");
        assert!(error.contains("sequence_digest"), "{error}");
    }

    #[test]
    fn the_number_of_windows_stands_right_after_the_key() {
        let mut layout = EmbeddingLayout {
            columns: vec!["mean_6".parse().expect("a column")],
            dim: 4,
            logits: VOCABULARY,
            dtype: StoreDtype::F16,
            stitched: true,
            labels: Labels::default(),
        };
        let schema = layout.schema();
        assert_eq!(schema.field(KEY_COLUMNS.len()).name(), N_WINDOWS);
        assert_eq!(layout.keys(), KEY_COLUMNS.len() + 1);
        assert_eq!(EmbeddingLayout::from_schema(&schema).as_ref(), Ok(&layout));
        layout.columns.push(Column::Logits);
        layout.logits = 64;
        let found = EmbeddingLayout::from_schema(&layout.schema());
        assert_eq!(found.as_ref(), Ok(&layout));
        layout.columns.clear();
        let error = EmbeddingLayout::from_schema(&layout.schema()).expect_err("no vectors");
        assert!(error.contains("at least one vector column"), "{error}");
    }
}
