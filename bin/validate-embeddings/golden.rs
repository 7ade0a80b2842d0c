//! Vectors of known proteins that a model is known to give.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use plmkit_cli::Fault;
use plmkit_contract::{Column, RESIDUES, catch_decoder_panic};
use plmkit_store::ExternalParquet;

use crate::reference::{broken, lists, vector, vector_columns, whole};

/// Known proteins, and their vectors.
#[derive(Debug, Default)]
pub(crate) struct Golden {
    pub(crate) columns: Vec<Column>,
    pub(crate) proteins: Vec<GoldenProtein>,
}

/// A known protein.
#[derive(Debug)]
pub(crate) struct GoldenProtein {
    pub(crate) id: String,
    pub(crate) sequence: String,
    /// In the order of the columns.
    pub(crate) vectors: Vec<Vec<f32>>,
}

impl Golden {
    /// Reads the columns `id` and `sequence`, and those that are named after a pooling and a layer.
    pub(crate) fn read(path: &Path) -> Result<Self, Fault> {
        let mut golden = Self::default();
        let mut file = ExternalParquet::open(path, |schema| {
            let names = vector_columns(schema).into_iter();
            let columns = names.filter_map(|name| name.parse().ok());
            golden.columns = columns
                .filter(|column| matches!(column, Column::Pooled { .. }))
                .collect();
            let keys = ["id", "sequence"];
            if golden.columns.is_empty() || keys.iter().any(|key| schema.index_of(key).is_err()) {
                let what = "expected columns id, sequence, and vectors such as mean_33";
                return Err(what.to_owned());
            }
            let columns = golden.columns.iter().map(ToString::to_string);
            Ok(keys.map(str::to_owned).into_iter().chain(columns).collect())
        })?;
        let names: Vec<String> = golden.columns.iter().map(ToString::to_string).collect();
        while let Some(batch) = file.next_batch()? {
            let add = || {
                let ids = whole(&batch, "id", &DataType::Utf8)?;
                let sequences = whole(&batch, "sequence", &DataType::Utf8)?;
                let lists = lists(&batch, &names)?;
                for row in 0..batch.num_rows() {
                    let id = ids.as_string::<i32>().value(row).to_owned();
                    let sequence = sequences.as_string::<i32>().value(row).to_owned();
                    if sequence.is_empty() || !sequence.bytes().all(|byte| RESIDUES.contains(&byte))
                    {
                        return Err(format!("'{id}': expected a sequence of residues"));
                    }
                    let vectors = lists.iter().map(|list| vector(list, row).to_vec());
                    let vectors: Vec<Vec<f32>> = vectors.collect();
                    if vectors.iter().flatten().any(|value| !value.is_finite()) {
                        return Err(format!("'{id}': expected finite values"));
                    }
                    golden.proteins.push(GoldenProtein {
                        id,
                        sequence,
                        vectors,
                    });
                }
                Ok(())
            };
            let added = catch_decoder_panic(add).unwrap_or_else(Err);
            added.map_err(|what| broken(path, &what))?;
        }
        if golden.proteins.is_empty() {
            return Err(broken(path, "expected known proteins, found no rows"));
        }
        Ok(golden)
    }
}
