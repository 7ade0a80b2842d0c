//! Rows of records that are in no shard, because another row has their residues: copies of that row, with keys of their own.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take;
use plmkit_contract::{
    DESCRIPTION, KEY_COLUMNS, KeyColumns, Kind, ListedFile, Quoted, RowKey, RowsBuilder, SAMPLE,
    Stop, alias_rows,
};
use plmkit_store::{EmbeddingsWriter, RecordListReader};

use crate::rejects::Rejects;
use crate::{DatasetError, Merge, Part, Parts};

/// The records of a list that are read at once. Their rows are found in one pass over the dataset.
const RECORDS: usize = 1 << 20;
/// The bytes of rows that are sorted in memory.
const RUN_BYTES: usize = 128 << 20;
/// The rows that are written at once.
const BATCH_ROWS: usize = 1024;

/// A list of records that get rows.
#[derive(Debug)]
pub(crate) struct List<'a> {
    pub(crate) path: PathBuf,
    /// Its entry of the manifest.
    pub(crate) listed: ListedFile,
    /// Of known records, the number and the parts of the earlier dataset that has the rows. Of aliases, the dataset itself has them.
    pub(crate) known_in: Option<(u32, &'a Parts)>,
}

/// A record without a row.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) representative: u64,
    pub(crate) ordinal: u64,
    pub(crate) id: String,
    pub(crate) description: Option<String>,
    pub(crate) length: u32,
    pub(crate) truncated: bool,
}

/// Opens a list whose rows have this digest, if that is known.
pub(crate) fn open_list(
    path: &Path,
    kind: Kind,
    digest: Option<&str>,
) -> Result<RecordListReader, DatasetError> {
    let reader = RecordListReader::open(path, kind)?;
    let found = reader.digest().to_string();
    if let Some(digest) = digest.filter(|digest| **digest != found) {
        let what = format!("expected rows {digest}, as manifest.json says, found {found}");
        return Err(DatasetError::content(path, what));
    }
    Ok(reader)
}

/// Copies rows, each for a record.
fn copy(
    rows: &RecordBatch,
    copies: &[(u32, &Record)],
    parts: &Parts,
) -> Result<RecordBatch, ArrowError> {
    let keys = KeyColumns::new(rows);
    let mut builder = RowsBuilder::of_keys();
    for &(place, record) in copies {
        builder.push(&RowKey {
            ordinal: record.ordinal,
            id: &record.id,
            length: record.length,
            truncated: record.truncated,
            ..keys.row(place as usize)
        });
    }
    let mut columns = builder.finish();
    let places = UInt32Array::from_iter_values(copies.iter().map(|&(place, _)| place));
    let schema = parts.layout.schema();
    for field in &schema.fields()[KEY_COLUMNS.len()..] {
        let column: ArrayRef = if field.name() == DESCRIPTION {
            let texts = copies
                .iter()
                .map(|(_, record)| record.description.as_deref());
            Arc::new(texts.collect::<StringArray>())
        } else if field.name() == SAMPLE {
            let sample = parts.parts[0].provenance.text_option(SAMPLE);
            Arc::new(StringArray::from(vec![
                sample.unwrap_or_default();
                copies.len()
            ]))
        } else {
            let found = rows.column_by_name(field.name());
            let found = found.ok_or_else(|| ArrowError::SchemaError(field.name().clone()))?;
            take(found, &places, None)?
        };
        columns.push(column);
    }
    RecordBatch::try_new(schema, columns)
}

/// The rows of records that are in no shard, in sorted runs: further parts.
pub(crate) struct Runs<'a> {
    pub(crate) parts: &'a mut Parts,
    /// Of the dataset, to which the records are added whose representative was rejected.
    pub(crate) rejects: &'a mut Rejects,
    pub(crate) folder: &'a Path,
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) bytes: usize,
    /// The rows of which residues were cut off, and the lengths of their proteins together.
    pub(crate) truncated: [u64; 2],
}

impl Runs<'_> {
    /// Adds the rows of the records in `list`. Those of aliases are among the rows of `own`.
    pub(crate) fn add_list(
        &mut self,
        list: &List<'_>,
        own: &Parts,
        stop: &Stop,
    ) -> Result<(), DatasetError> {
        let (kind, dataset, rows_of) = match list.known_in {
            Some((number, parts)) => (Kind::Known, Some(number), parts),
            None => (Kind::Aliases, None, own),
        };
        let mut reader = open_list(&list.path, kind, Some(&list.listed.digest))?;
        let mut records = Vec::new();
        loop {
            let batch = reader.next_batch()?;
            if let Some(batch) = &batch {
                let rows = alias_rows(batch).filter(|row| row.dataset == dataset);
                records.extend(rows.map(|row| Record {
                    representative: row.representative,
                    ordinal: row.key.ordinal,
                    id: row.key.id.to_owned(),
                    description: row.description.map(str::to_owned),
                    length: row.key.length,
                    truncated: row.key.truncated,
                }));
            }
            if records.len() >= RECORDS || (batch.is_none() && !records.is_empty()) {
                let chunk = std::mem::take(&mut records);
                self.add_rows(list, rows_of, chunk, stop)?;
            }
            if batch.is_none() {
                return self.end();
            }
        }
    }

    /// Adds the rows of some records of `list`, which are among `rows` or were rejected.
    fn add_rows(
        &mut self,
        list: &List<'_>,
        rows: &Parts,
        mut records: Vec<Record>,
        stop: &Stop,
    ) -> Result<(), DatasetError> {
        records.sort_unstable_by_key(|record| (record.representative, record.ordinal));
        let mut ordinals: Vec<u64> = records.iter().map(|record| record.representative).collect();
        ordinals.dedup();
        let columns = 0..rows.layout.columns.len();
        let mut merge = Merge::new(rows, columns, stop).of_ordinals(&ordinals);
        let mut found = HashSet::new();
        while let Some(rows) = merge.next_rows()? {
            let mut copies = Vec::new();
            for (place, key) in KeyColumns::new(&rows).rows().enumerate() {
                found.insert(key.ordinal);
                let of = |record: &Record| record.representative.cmp(&key.ordinal);
                let start = records.partition_point(|record| of(record) == Ordering::Less);
                let same = records[start..].iter();
                let same = same.take_while(|record| of(record) == Ordering::Equal);
                copies.extend(same.map(|record| (place as u32, record)));
            }
            for (_, record) in copies.iter().filter(|(_, record)| record.truncated) {
                self.truncated[0] += 1;
                self.truncated[1] += u64::from(record.length);
            }
            // Many records may have one representative.
            for copies in copies.chunks(BATCH_ROWS) {
                let batch = copy(&rows, copies, self.parts);
                let batch = batch.map_err(|error| DatasetError::content(self.folder, error))?;
                self.push(batch)?;
            }
        }
        let is_missing = |record: &&Record| !found.contains(&record.representative);
        for record in records.iter().filter(is_missing) {
            if list.known_in.is_some() || !self.rejects.add_copy(record) {
                return Err(record.without_row(&list.path));
            }
        }
        Ok(())
    }

    fn push(&mut self, batch: RecordBatch) -> Result<(), DatasetError> {
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        if self.bytes >= RUN_BYTES {
            self.end()?;
        }
        Ok(())
    }

    /// Sorts the rows, and writes them.
    fn end(&mut self) -> Result<(), DatasetError> {
        self.bytes = 0;
        let batches = std::mem::take(&mut self.batches);
        if batches.is_empty() {
            return Ok(());
        }
        let mut places = Vec::new();
        for (number, batch) in batches.iter().enumerate() {
            let keys = KeyColumns::new(batch);
            places.extend(
                keys.rows()
                    .enumerate()
                    .map(|(row, key)| (key.sort_key(), (number, row))),
            );
        }
        places.sort_unstable();
        let path = self
            .folder
            .join(format!("run-{:05}.parquet", self.parts.parts.len()));
        let mut writer = EmbeddingsWriter::create(&path, &self.parts.layout)?;
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        for places in places.chunks(BATCH_ROWS) {
            let places: Vec<(usize, usize)> = places.iter().map(|&(_, place)| place).collect();
            let rows = interleave_record_batch(&batches, &places);
            let rows = rows.map_err(|error| DatasetError::content(&path, error))?;
            writer.write(&rows)?;
        }
        writer.finish(&self.parts.provenance())?;
        self.parts.parts.push(Part::open(&path)?.0);
        Ok(())
    }
}

impl Record {
    /// The error of a record whose representative is in no part.
    pub(crate) fn without_row(&self, list: &Path) -> DatasetError {
        let what = format!(
            "ordinal {} {}: expected the row of ordinal {}, which has its residues, among the embeddings or their rejects",
            self.ordinal,
            Quoted(&self.id),
            self.representative
        );
        DatasetError::content(list, what)
    }
}
