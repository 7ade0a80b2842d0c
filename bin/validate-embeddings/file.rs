//! Reads one embeddings file.

use arrow_array::RecordBatch;
use plmkit_check::Validator;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{EmbeddingLayout, KeyColumns, path_text};
use plmkit_store::{EmbeddingsReader, StoreError};

use crate::groups::{EmbeddingsFile, Reading};
use crate::vectors::Vectors;

/// The first rows of a file, from which it is learned where the others are expected.
const FIRST_ROWS: usize = 2048;

/// Shows all rows of a file to a validator.
pub(crate) fn read_file(
    reading: &Reading<'_>,
    file: &EmbeddingsFile,
    validator: &mut Validator<'_>,
) -> Result<(), Fault> {
    let mut reader = EmbeddingsReader::open(&file.path)?;
    let layout = &file.layout;
    if (reader.digest(), reader.layout()) != (file.rows, layout) {
        let what = "it was replaced in the meantime";
        return Err(StoreError::malformed(&file.path, what).into());
    }
    let mut first = Vec::new();
    let mut rows = 0;
    while rows < FIRST_ROWS
        && let Some(batch) = reader.next_batch()?
    {
        rows += batch.num_rows();
        first.push(batch);
    }
    begin(reading, file, &first, validator)?;
    for batch in first {
        add_rows(&batch, layout, validator);
    }
    while let Some(batch) = reader.next_batch()? {
        reading.check_stop()?;
        add_rows(&batch, layout, validator);
    }
    Ok(())
}

/// Begins a file with its first rows, which say where the others are expected.
fn begin(
    reading: &Reading<'_>,
    file: &EmbeddingsFile,
    batches: &[RecordBatch],
    validator: &mut Validator<'_>,
) -> Result<(), Fault> {
    let columns = batches.iter().map(|batch| vectors(batch, &file.layout));
    let columns: Vec<Vec<Vectors>> = columns.collect();
    let first = (0..file.layout.columns.len()).map(|column| {
        let batches = batches.iter().zip(&columns);
        let rows = batches.flat_map(|(batch, columns)| {
            (0..batch.num_rows()).map(move |row| columns[column].row(row))
        });
        rows.take(FIRST_ROWS).collect()
    });
    let first: Vec<Vec<&[f32]>> = first.collect();
    let named = file.named(&reading.args.name(&file.path));
    validator.begin_file(named, &first).map_err(|error| {
        // Only a reference can be wrong here.
        let reference = reading.args.reference.first();
        let path = path_text(reference.unwrap_or(&file.path));
        Fault::new(Exit::Data, format!("{path}: {error}"))
    })
}

fn add_rows(batch: &RecordBatch, layout: &EmbeddingLayout, validator: &mut Validator<'_>) {
    let columns = vectors(batch, layout);
    for (place, row) in KeyColumns::new(batch).rows().enumerate() {
        let vectors: Vec<&[f32]> = columns.iter().map(|column| column.row(place)).collect();
        validator.add_row(&row, &vectors);
    }
}

/// The vector columns of a batch.
pub(crate) fn vectors<'a>(batch: &'a RecordBatch, layout: &EmbeddingLayout) -> Vec<Vectors<'a>> {
    let columns = layout.columns.iter();
    columns
        .map(|column| Vectors::new(&batch[column.to_string().as_str()]))
        .collect()
}
