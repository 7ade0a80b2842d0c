//! Rows of records that are in no shard, because another row has their residues: copies of that row, with keys of their own.

use std::collections::HashSet;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take;
use plmkit_contract::{
    AliasRow, DESCRIPTION, EmbeddingWork, KEY_COLUMNS, KeyColumns, Kind, KnownDataset,
    ListedDataset, MANIFEST_FILE, Reject, RowDigest, RowKey, RowsBuilder, SAMPLE, alias_rows,
};
use plmkit_kit::{Quoted, Stop, plural};
use plmkit_store::EmbeddingsWriter;
use serde_json::{Value, json};

use super::Combining;
use super::samples::add_to;
use crate::folder::SHARDS;
use crate::lists::open_list;
use crate::merge::BATCH_ROWS;
use crate::{Dataset, DatasetError, DatasetPart, Merge};

/// The records of a list that are read at once. Their rows are found in one pass over the dataset.
const RECORDS: usize = 1 << 20;
/// The bytes of rows that are sorted in memory.
const RUN_BYTES: usize = 128 << 20;

/// The digests of the rows of an earlier dataset, and of those that it was combined from, which are among its rows.
fn digests(dataset: &Dataset) -> Vec<String> {
    let listed = dataset.listed.as_ref();
    let combined = listed.and_then(ListedDataset::combined_rows);
    let digests = [Some(dataset.digest()), combined];
    let mut digests: Vec<String> = digests.iter().flatten().map(RowDigest::to_string).collect();
    digests.dedup();
    digests
}

/// Describes datasets by sample, rows and digest.
fn described(datasets: &[KnownDataset]) -> String {
    let datasets = datasets.iter().map(|dataset| {
        let name = dataset.sample.as_deref().unwrap_or("without a name");
        let rows = plural(dataset.rows, "row");
        format!("{name} of {rows}, {}", dataset.digest)
    });
    datasets.collect::<Vec<_>>().join("; ")
}

impl Combining<'_> {
    /// Finds the lists of records that get rows, and counts the records that are left out.
    pub(super) fn find_shared(&mut self) -> Result<(), DatasetError> {
        let (shards, asked) = (self.dataset.path.join(SHARDS), &self.config.known);
        let is_combined = self.listed.combined.is_some();
        let has_manifest = self.dataset.manifest.is_some();
        let manifest = self.dataset.manifest.clone().unwrap_or_default();
        for (at, (file, kind, list)) in manifest.lists().into_iter().enumerate().take(2) {
            let (name, is_asked, otherwise) = match kind {
                Kind::Aliases => ("aliases", !self.config.distinct, "with --distinct"),
                _ => ("known", !asked.is_empty(), "without --known"),
            };
            let counts = &mut self.listed.others;
            let counted = counts.get(name).and_then(Value::as_u64);
            let counted = counted.filter(|_| !has_manifest && !is_combined);
            let records = list.map_or(counted.unwrap_or_default(), |list| list.rows);
            if !is_asked {
                self.left_out[at] = records;
            } else if let Some(list) = list {
                self.shared += records;
                counts.insert(name.to_owned(), json!(0));
                self.lists.push((file, kind, list.clone()));
            } else if records > 0 {
                let what = format!(
                    "no such file: expected {} of {name}; {otherwise} they are left out",
                    plural(records, "record")
                );
                return Err(DatasetError::missing(&shards.join(file), what));
            }
        }
        match &manifest.known {
            _ if asked.is_empty() => Ok(()),
            Some(known) => self.find_known(&known.datasets),
            None => {
                let what = "--known: the dataset has no records of earlier datasets";
                Err(DatasetError::usage(what))
            }
        }
    }

    /// Finds the known `datasets` among those that are given.
    fn find_known(&mut self, datasets: &[KnownDataset]) -> Result<(), DatasetError> {
        let given = || {
            self.config
                .known
                .iter()
                .map(|given| (given, digests(given)))
        };
        let is_known = |digests: &[String]| {
            let mut known = datasets.iter();
            known.any(|known| digests.contains(&known.digest))
        };
        if let Some((other, digests)) = given().find(|(_, digests)| !is_known(digests)) {
            let what = format!(
                "expected a dataset that fasta-shard --known knew: {}; found {}",
                described(datasets),
                digests.join(", combined from ")
            );
            return Err(DatasetError::content(&other.path, what));
        }
        for expected in datasets {
            let found = given().find(|(_, digests)| digests.contains(&expected.digest));
            let Some((found, _)) = found else {
                let expected = described(slice::from_ref(expected));
                let what = format!("expected --known with the dataset {expected}, too");
                let manifest = self.dataset.path.join(SHARDS).join(MANIFEST_FILE);
                return Err(DatasetError::missing(&manifest, what));
            };
            let [own, other] = [&self.dataset.parts[0], &found.parts[0]];
            let works = [own, other].map(|part| EmbeddingWork::new(&part.provenance.options));
            let shape = |part: &DatasetPart| (part.layout.columns.clone(), part.layout.dim);
            let different = works[0].difference(&works[1]).or_else(|| {
                (shape(own) != shape(other))
                    .then(|| "expected the columns of this dataset, found others".to_owned())
            });
            if let Some(what) = different {
                return Err(DatasetError::content(&other.path, what));
            }
            self.known.push(&found.parts);
        }
        Ok(())
    }

    /// Writes the rows of all records in the lists to files in `folder`, as further parts: sorted runs. Of records whose representative
    /// was rejected, the rows are rejected, too.
    pub(super) fn expand(&mut self, folder: &Path, stop: &Stop) -> Result<(), DatasetError> {
        // The runs of one list are no rows of the other.
        let own = self.dataset.parts.clone();
        for (file, kind, listed) in self.lists.clone() {
            let path = self.dataset.path.join(SHARDS).join(file);
            let mut reader = open_list(&path, kind, &listed.digest)?;
            let (mut batches, mut count) = (Vec::new(), 0);
            let mut run = (Vec::new(), 0);
            loop {
                let batch = reader.next_batch()?;
                let is_last = batch.is_none();
                count += batch.as_ref().map_or(0, RecordBatch::num_rows);
                batches.extend(batch);
                if count >= RECORDS || is_last {
                    let mut records: Vec<AliasRow> = batches.iter().flat_map(alias_rows).collect();
                    let key = |row: &AliasRow| (row.dataset, row.representative, row.key.ordinal);
                    records.sort_unstable_by_key(key);
                    for records in records.chunk_by(|one, next| one.dataset == next.dataset) {
                        let number = records[0].dataset.map(|number| number as usize);
                        let known = |number| self.known.get(number).copied();
                        let rows = number.map_or(Some(&*own), known);
                        let rows = rows.ok_or_else(|| without_row(&records[0], &path))?;
                        self.copy_rows(rows, records, &path, folder, &mut run, stop)?;
                    }
                    (count, batches) = (0, Vec::new());
                }
                if is_last {
                    break self.end_run(folder, &run.0)?;
                }
            }
        }
        Ok(())
    }

    /// Copies rows for the `records` of the list at `path`, which are sorted by their representatives: these are among `rows`, or were
    /// rejected.
    fn copy_rows(
        &mut self,
        rows: &[DatasetPart],
        records: &[AliasRow<'_>],
        path: &Path,
        folder: &Path,
        run: &mut (Vec<RecordBatch>, usize),
        stop: &Stop,
    ) -> Result<(), DatasetError> {
        let mut ordinals: Vec<u64> = records.iter().map(|record| record.representative).collect();
        ordinals.dedup();
        let columns = 0..rows[0].layout.columns.len();
        let mut merge = Merge::new(rows, columns, stop).of_ordinals(&ordinals);
        let mut found = HashSet::new();
        while let Some(rows) = merge.next_rows()? {
            let mut copies = Vec::new();
            for (place, key) in KeyColumns::new(&rows).rows().enumerate() {
                found.insert(key.ordinal);
                let start = records.partition_point(|record| record.representative < key.ordinal);
                let same = records[start..].iter();
                let same = same.take_while(|record| record.representative == key.ordinal);
                copies.extend(same.map(|record| (place as u32, record)));
            }
            for (_, record) in copies.iter().filter(|(_, record)| record.key.truncated) {
                self.count_truncated(record.key.length.into());
            }
            // Many records may have one representative.
            for copies in copies.chunks(BATCH_ROWS) {
                let batch = copy(&rows, copies, &self.dataset.parts[0]);
                let batch = batch.map_err(|error| DatasetError::content(folder, error))?;
                run.1 += batch.get_array_memory_size();
                run.0.push(batch);
                if run.1 >= RUN_BYTES {
                    self.end_run(folder, &std::mem::take(run).0)?;
                }
            }
        }
        let is_missing = |record: &&AliasRow| !found.contains(&record.representative);
        for record in records.iter().filter(is_missing) {
            if record.dataset.is_some() || !self.reject(record) {
                return Err(without_row(record, path));
            }
        }
        Ok(())
    }

    /// Counts a row of which residues were cut off, of a protein of this length.
    fn count_truncated(&mut self, length: u64) {
        let options = self.listed.shard_options.as_ref();
        let kept = options.and_then(|options| options.get("max_residues")?.as_u64());
        let cut_off = kept.map_or(0, |kept| length.saturating_sub(kept));
        add_to(&mut self.listed.others, "truncated", 1);
        add_to(&mut self.listed.others, "residues_truncated", cut_off);
    }

    /// Rejects the rows of a record whose representative was rejected. Returns false if it was not.
    fn reject(&mut self, record: &AliasRow<'_>) -> bool {
        let of = |line: &&Reject| line.ordinal == record.representative;
        let copies = self.rows.iter().filter(of).map(|line| Reject {
            ordinal: record.key.ordinal,
            id: record.key.id.to_owned(),
            length: record.key.length.into(),
            ..line.clone()
        });
        let copies: Vec<Reject> = copies.collect();
        if let Some(Value::Object(counts)) = self.listed.others.get_mut("rejected") {
            for copy in &copies {
                let reason = copy.reason.to_string();
                counts.entry(&reason).or_insert(json!(0));
                add_to(counts, &reason, 1);
            }
        }
        let was_rejected = !copies.is_empty();
        self.rows.extend(copies);
        was_rejected
    }

    /// Sorts rows, and writes them as a further part.
    fn end_run(&mut self, folder: &Path, run: &[RecordBatch]) -> Result<(), DatasetError> {
        if run.is_empty() {
            return Ok(());
        }
        let mut places = Vec::new();
        for (number, batch) in run.iter().enumerate() {
            let keys = KeyColumns::new(batch);
            let rows = keys.rows().enumerate();
            places.extend(rows.map(|(row, key)| (key.sort_key(), (number, row))));
        }
        places.sort_unstable();
        let path = folder.join(format!("run-{:05}.parquet", self.dataset.parts.len()));
        let mut writer = EmbeddingsWriter::create(&path, &self.dataset.parts[0].layout)?;
        let batches: Vec<&RecordBatch> = run.iter().collect();
        for places in places.chunks(BATCH_ROWS) {
            let places: Vec<(usize, usize)> = places.iter().map(|&(_, place)| place).collect();
            let rows = interleave_record_batch(&batches, &places);
            let rows = rows.map_err(|error| DatasetError::content(&path, error))?;
            writer.write(&rows)?;
        }
        writer.finish(&self.dataset.provenance())?;
        self.dataset.parts.push(DatasetPart::open(&path)?);
        Ok(())
    }
}

/// Copies rows to the columns of `part`, each for a record.
fn copy(
    rows: &RecordBatch,
    copies: &[(u32, &AliasRow<'_>)],
    part: &DatasetPart,
) -> Result<RecordBatch, ArrowError> {
    let keys = KeyColumns::new(rows);
    let mut builder = RowsBuilder::of_keys();
    for &(place, record) in copies {
        builder.push(&RowKey {
            ordinal: record.key.ordinal,
            id: record.key.id,
            length: record.key.length,
            truncated: record.key.truncated,
            ..keys.row(place as usize)
        });
    }
    let mut columns = builder.finish();
    let places = UInt32Array::from_iter_values(copies.iter().map(|&(place, _)| place));
    let schema = part.layout.schema();
    for field in &schema.fields()[KEY_COLUMNS.len()..] {
        let column: ArrayRef = if field.name() == DESCRIPTION {
            let texts = copies.iter().map(|(_, record)| record.description);
            Arc::new(texts.collect::<StringArray>())
        } else if field.name() == SAMPLE {
            let sample = part.provenance.text_option(SAMPLE).unwrap_or_default();
            Arc::new(StringArray::from(vec![sample; copies.len()]))
        } else {
            let found = rows.column_by_name(field.name());
            let found = found.ok_or_else(|| ArrowError::SchemaError(field.name().clone()))?;
            take(found, &places, None)?
        };
        columns.push(column);
    }
    RecordBatch::try_new(schema, columns)
}

/// The error of a record of the list at `path` whose representative is in no part.
fn without_row(record: &AliasRow<'_>, path: &Path) -> DatasetError {
    let what = format!(
        "ordinal {} {}: expected the row of ordinal {}, which has its residues, among the embeddings or their rejects",
        record.key.ordinal,
        Quoted(record.key.id),
        record.representative
    );
    DatasetError::content(path, what)
}
