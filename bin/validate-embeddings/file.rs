//! Reads one embeddings file.

use arrow::array::RecordBatch;
use plmkit_check::Validator;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{EmbeddingLayout, KeyColumns, RowDigest, path_text};
use plmkit_store::EmbeddingsReader;

use crate::groups::{EmbeddingsFile, Reading};
use crate::vectors::Vectors;

/// The first rows of a file, from which it is learned where the others are expected.
const FIRST_ROWS: usize = 2048;

/// An embeddings file on its way to a validator.
pub(crate) struct FileReading<'a, 'b> {
    validator: &'a mut Validator<'b>,
    file: &'a EmbeddingsFile,
    name: &'a str,
    /// The ordinal of its first row.
    pub(crate) first: Option<u64>,
}

impl<'a, 'b> FileReading<'a, 'b> {
    pub(crate) fn new(
        validator: &'a mut Validator<'b>,
        file: &'a EmbeddingsFile,
        name: &'a str,
    ) -> Self {
        Self {
            validator,
            file,
            name,
            first: None,
        }
    }

    /// Reads all rows. Returns their digest.
    pub(crate) fn read(&mut self, reading: &Reading<'_>) -> Result<RowDigest, Fault> {
        let mut reader = EmbeddingsReader::open(&self.file.path)?;
        let layout = reader.layout().clone();
        let mut begun = Vec::new();
        let mut rows = 0;
        while rows < FIRST_ROWS
            && let Some(batch) = reader.next_batch()?
        {
            rows += batch.num_rows();
            begun.push(batch);
        }
        self.begin(reading, &reader, &begun)?;
        drop(begun);
        while let Some(batch) = reader.next_batch()? {
            reading.check_stop()?;
            self.add_rows(&batch, &vectors(&batch, &layout));
        }
        Ok(reader.digest())
    }

    /// Begins the file with its first rows, which say where the others are expected.
    fn begin(
        &mut self,
        reading: &Reading<'_>,
        reader: &EmbeddingsReader,
        batches: &[RecordBatch],
    ) -> Result<(), Fault> {
        let layout = reader.layout();
        let columns = batches.iter().map(|batch| vectors(batch, layout));
        let columns: Vec<Vec<Vectors>> = columns.collect();
        let first: Vec<Vec<&[f32]>> = (0..layout.columns.len())
            .map(|column| {
                let batches = batches.iter().zip(&columns);
                let rows = batches.flat_map(|(batch, columns)| {
                    (0..batch.num_rows()).map(move |row| columns[column].row(row))
                });
                rows.take(FIRST_ROWS).collect()
            })
            .collect();
        let provenance = reader.provenance();
        let begun = self
            .validator
            .begin_file(self.name, provenance, layout, &first);
        begun.map_err(|error| {
            // Only a reference can be wrong here.
            let reference = reading.args.reference.first();
            let path = path_text(reference.unwrap_or(&self.file.path));
            Fault::new(Exit::Data, format!("{path}: {error}"))
        })?;
        for (batch, columns) in batches.iter().zip(&columns) {
            self.add_rows(batch, columns);
        }
        Ok(())
    }

    fn add_rows(&mut self, batch: &RecordBatch, columns: &[Vectors]) {
        for (place, row) in KeyColumns::new(batch).rows().enumerate() {
            self.first.get_or_insert(row.ordinal);
            let vectors: Vec<&[f32]> = columns.iter().map(|column| column.row(place)).collect();
            self.validator.add_row(&row, &vectors);
        }
    }
}

/// The vector columns of a batch.
pub(crate) fn vectors<'a>(batch: &'a RecordBatch, layout: &EmbeddingLayout) -> Vec<Vectors<'a>> {
    let columns = layout.columns.iter();
    columns
        .map(|column| Vectors::new(&batch[column.to_string().as_str()]))
        .collect()
}
