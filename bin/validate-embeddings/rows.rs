//! Reads the rows of an embeddings file.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{Array, RecordBatch};
use plmkit_cli::Fault;
use plmkit_contract::{EmbeddingLayout, KeyColumns, RowKey};
use plmkit_store::EmbeddingsReader;

/// Shows all rows of a file that is open, each with a vector for each column. Before each batch, `check` may end this.
pub(crate) fn each_row(
    reader: &mut EmbeddingsReader,
    check: impl Fn() -> Result<(), Fault>,
    mut see: impl FnMut(&RowKey, &[&[f32]]),
) -> Result<(), Fault> {
    let layout = reader.layout().clone();
    while let Some(batch) = reader.next_batch()? {
        check()?;
        let columns = vectors(&batch, &layout);
        for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
            let vectors: Vec<&[f32]> = columns.iter().map(|column| column.row(place)).collect();
            see(&row, &vectors);
        }
    }
    Ok(())
}

/// The vector columns of a batch.
fn vectors<'a>(batch: &'a RecordBatch, layout: &EmbeddingLayout) -> Vec<Vectors<'a>> {
    let columns = layout.columns.iter();
    columns
        .map(|column| Vectors::new(&batch[column.to_string().as_str()]))
        .collect()
}

/// A column of vectors, or of lists of them.
struct Vectors<'a> {
    values: Cow<'a, [f32]>,
    rows: Rows<'a>,
}

/// Which values belong to a row.
enum Rows<'a> {
    /// So many each.
    Fixed(usize),
    /// From one offset to the next, each counting so many values.
    Listed(&'a [i32], usize),
}

impl<'a> Vectors<'a> {
    /// A column of a verified embeddings file: values of f32 or f16, in lists unless there is one for each row.
    fn new(column: &'a dyn Array) -> Self {
        if let Some(vectors) = column.as_fixed_size_list_opt() {
            return Self {
                values: single(vectors.values()),
                rows: Rows::Fixed(vectors.value_length() as usize),
            };
        }
        let Some(list) = column.as_list_opt::<i32>() else {
            return Self {
                values: single(column),
                rows: Rows::Fixed(1),
            };
        };
        let (values, width) = match list.values().as_fixed_size_list_opt() {
            Some(vectors) => (vectors.values(), vectors.value_length() as usize),
            None => (list.values(), 1),
        };
        Self {
            values: single(values),
            rows: Rows::Listed(list.value_offsets(), width),
        }
    }

    fn row(&self, row: usize) -> &[f32] {
        match self.rows {
            Rows::Fixed(dim) => &self.values[row * dim..(row + 1) * dim],
            Rows::Listed(offsets, width) => {
                &self.values[offsets[row] as usize * width..offsets[row + 1] as usize * width]
            }
        }
    }
}

fn single(values: &dyn Array) -> Cow<'_, [f32]> {
    match values.as_primitive_opt::<Float16Type>() {
        Some(halves) => halves.values().iter().map(|half| half.to_f32()).collect(),
        None => Cow::Borrowed(values.as_primitive::<Float32Type>().values().as_ref()),
    }
}
