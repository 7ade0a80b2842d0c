//! The parts of a dataset.

use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use plmkit_contract::{
    EmbeddingLayout, KERNELS, PACKING, Provenance, RowDigest, SAMPLE, SCORES, SOURCE, Stop,
    ordinals, path_text,
};
use plmkit_store::{EmbeddingsFile, GroupSummary, StoreError};
use serde_json::Value;

use crate::DatasetError;

/// An embeddings file of a dataset, closed: what its footer says.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its path.
    pub path: PathBuf,
    /// The digest of its rows, with their number.
    pub digest: RowDigest,
    /// Its origin.
    pub provenance: Provenance,
    /// Its row groups, in the order of the file.
    pub groups: Vec<GroupSummary>,
    /// What is added to the ordinals of the file.
    pub(crate) offset: u64,
}

impl Part {
    /// Reads the end of a file.
    pub(crate) fn open(path: &Path) -> Result<(Self, EmbeddingLayout), StoreError> {
        let file = EmbeddingsFile::open(path)?;
        let part = Self {
            path: path.to_owned(),
            digest: file.digest(),
            provenance: file.provenance().clone(),
            groups: file.groups()?,
            offset: 0,
        };
        Ok((part, file.layout().clone()))
    }

    /// Opens the file again, to read its rows. All that is read of it is from the file that is open then.
    ///
    /// # Errors
    /// If another file is at its path: one that was not compared with `dataset.json`.
    pub(crate) fn reopen(&self) -> Result<EmbeddingsFile, StoreError> {
        let file = EmbeddingsFile::open(&self.path)?;
        let groups = shifted(file.groups()?, self.offset);
        if (file.digest(), groups) != (self.digest, self.groups.clone()) {
            let what = "it was replaced in the meantime";
            return Err(StoreError::malformed(&self.path, what));
        }
        Ok(file)
    }

    /// Adds to the ordinals of all rows.
    pub(crate) fn shift(&mut self, offset: u64) {
        self.offset += offset;
        self.groups = shifted(std::mem::take(&mut self.groups), offset);
    }

    /// Returns rows of the file as those of this part.
    pub(crate) fn own(&self, rows: RecordBatch) -> Result<RecordBatch, DatasetError> {
        if self.offset == 0 {
            return Ok(rows);
        }
        let ordinals = ordinals(&rows).iter();
        let ordinals = ordinals.map(|ordinal| (ordinal + self.offset).cast_signed());
        let ordinals: ArrayRef = Arc::new(Int64Array::from_iter_values(ordinals));
        let others = rows.columns().iter().skip(1).cloned();
        let columns = iter::once(ordinals).chain(others).collect();
        let rows = RecordBatch::try_new(rows.schema(), columns);
        rows.map_err(|error| DatasetError::content(&self.path, error))
    }
}

/// Adds to the ordinals of row groups.
fn shifted(mut groups: Vec<GroupSummary>, offset: u64) -> Vec<GroupSummary> {
    for group in &mut groups {
        let (first, last) = group.ordinals;
        group.ordinals = (first + offset, last + offset);
    }
    groups
}

/// All embeddings files of a dataset: of one work, with the same columns.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The parts, in the order given.
    pub parts: Vec<Part>,
    /// The columns of each of them.
    pub layout: EmbeddingLayout,
}

impl Parts {
    /// Opens all files once. Their ends are verified, their rows are not read.
    ///
    /// # Errors
    /// If there are no files, if one is damaged or missing, or if they are not of one work.
    pub fn open(paths: &[PathBuf], stop: &Stop) -> Result<Self, DatasetError> {
        let mut parts: Vec<Part> = Vec::with_capacity(paths.len());
        let mut layout = None;
        for path in paths {
            if stop.requested() {
                return Err(DatasetError::stopped());
            }
            let (part, found) = Part::open(path)?;
            let layout = layout.get_or_insert_with(|| found.clone());
            if let Some(first) = parts.first() {
                check_same(path, (&part.provenance, &found), (first, layout))?;
            }
            parts.push(part);
        }
        let layout = layout.ok_or_else(|| {
            DatasetError::missing(Path::new("."), "expected embeddings files, found none")
        })?;
        Ok(Self { parts, layout })
    }

    /// Returns the digest of all rows, with their number.
    pub fn digest(&self) -> RowDigest {
        self.parts.iter().map(|part| part.digest).sum()
    }

    /// Returns the provenance of rows of all parts, without inputs.
    pub(crate) fn provenance(&self) -> Provenance {
        let all = || self.parts.iter().map(|part| &part.provenance);
        let mut provenance = self.parts[0].provenance.clone();
        let joined = |values: BTreeSet<&str>| values.into_iter().collect::<Vec<_>>().join(", ");
        provenance.version = joined(all().map(|part| &*part.version).collect());
        let kernels: BTreeSet<&str> = all().filter_map(|part| part.text_option(KERNELS)).collect();
        if !kernels.is_empty() {
            provenance = provenance.with(KERNELS, joined(kernels));
        }
        let samples: BTreeSet<&str> = all().filter_map(|part| part.text_option(SAMPLE)).collect();
        if samples.len() > 1 {
            provenance = provenance.with(SAMPLE, joined(samples));
            provenance.options.remove(SOURCE);
        }
        provenance.options.remove(PACKING);
        provenance.inputs.clear();
        // The part that is least like f32.
        let cosine = |parity: &Value| parity["mean_cosine"].as_f64().unwrap_or(1.0);
        let parities = all().filter_map(|part| part.parity.as_ref());
        let least = parities.min_by(|one, other| cosine(one).total_cmp(&cosine(other)));
        provenance.parity = least.cloned();
        provenance
    }

    /// Returns the places of the computed columns of these names, or of all.
    pub fn places(&self, names: &[String]) -> Result<Vec<usize>, DatasetError> {
        let places = self.layout.places(names);
        places.map_err(|what| DatasetError::content(&self.parts[0].path, what))
    }

    /// Returns how scores were computed, if there are some.
    pub fn scores(&self) -> Option<&str> {
        self.parts[0].provenance.text_option(SCORES)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.digest().rows()
    }
}

/// Checks that a file has the columns, the work and the set of shards of the first part.
fn check_same(
    path: &Path,
    (provenance, layout): (&Provenance, &EmbeddingLayout),
    (first, expected): (&Part, &EmbeddingLayout),
) -> Result<(), DatasetError> {
    let place = path_text(&first.path);
    let what = if layout != expected {
        format!("expected the columns of {place}, found others")
    } else if let Some((what, was, is)) = first.provenance.changed_work(provenance) {
        format!("expected {what} {was} as in {place}, found {is}")
    } else if provenance.options.get(SOURCE) != first.provenance.options.get(SOURCE) {
        format!("not of the same set of shards as {place}")
    } else {
        return Ok(());
    };
    Err(DatasetError::content(path, what))
}

#[cfg(test)]
mod tests {
    use arrow_array::{FixedSizeListArray, Float32Array};
    use arrow_schema::{DataType, Field};
    use plmkit_contract::{
        Column, Labels, Pooling, RowKey, RowsBuilder, SequenceDigest, StoreDtype,
    };
    use plmkit_store::EmbeddingsWriter;

    use super::*;
    use crate::Merge;

    /// Writes a file with one row, whose vector has this value.
    fn part(path: &Path, value: f32) {
        let layout = EmbeddingLayout {
            columns: vec![Column::Pooled {
                pool: Pooling::Mean,
                layer: 6,
            }],
            dim: 1,
            logits: plmkit_contract::VOCABULARY,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: Labels::default(),
        };
        let mut keys = RowsBuilder::of_keys();
        keys.push(&RowKey {
            ordinal: 0,
            id: "P1",
            start: 0,
            length: 1,
            truncated: false,
            digest: SequenceDigest::new(b"M"),
            n_windows: 1,
        });
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let values: ArrayRef = Arc::new(Float32Array::from(vec![value]));
        let mut columns = keys.finish();
        columns.push(Arc::new(FixedSizeListArray::new(item, 1, values, None)));
        let mut writer = EmbeddingsWriter::create(path, &layout).expect("create");
        let batch = RecordBatch::try_new(Arc::clone(writer.schema()), columns);
        writer.write(&batch.expect("a row")).expect("write");
        let provenance = Provenance::new("gpu-embed", Vec::new());
        writer.finish(&provenance).expect("finish");
    }

    #[test]
    fn a_part_that_was_replaced_after_it_was_checked_is_not_read() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("a.parquet");
        part(&path, 1.0);
        let stop = Stop::default();
        let parts = Parts::open(std::slice::from_ref(&path), &stop).expect("a part");
        let read = || Merge::new(&parts, [0], &stop).next_rows();
        assert!(read().expect("as it was checked").is_some());
        part(&path, 2.0);
        let error = read().expect_err("another file");
        assert!(error.to_string().contains("it was replaced"), "{error}");
    }
}
