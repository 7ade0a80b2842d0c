//! A dataset: its parts, and its `dataset.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use plmkit_contract::{
    Column, DATASET_FILE, EmbeddingLayout, EmbeddingWork, KERNELS, ListedDataset, Manifest,
    PACKING, Provenance, RowDigest, SAMPLE, SCORES, SOURCE, Stop, check_contract, ordinals,
    path_text,
};
use plmkit_store::{EmbeddingsFile, GroupSummary, StoreError, is_absent, read_sealed, visible_in};
use serde_json::Value;

use crate::DatasetError;
use crate::folder::{REJECTS, SHARDS, has_shards, own_files, parts_at};
use crate::lists::{read_lists, read_manifest};

/// An embeddings file of a dataset, closed: what its footer says.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its path.
    pub path: PathBuf,
    /// The digest of its rows, with their number.
    pub digest: RowDigest,
    /// Its origin.
    pub provenance: Provenance,
    /// Its columns.
    pub layout: EmbeddingLayout,
    /// Its row groups, in the order of the file.
    pub(crate) groups: Vec<GroupSummary>,
    /// What is added to the ordinals of the file.
    pub(crate) offset: u64,
}

impl Part {
    /// Reads the end of a file.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = EmbeddingsFile::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            digest: file.digest(),
            provenance: file.provenance().clone(),
            layout: file.layout().clone(),
            groups: file.groups()?,
            offset: 0,
        })
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

    /// Describes how the rows of a file were made otherwise than those of the `first`, of whatever sequences.
    pub(crate) fn difference(&self, first: &Self) -> Option<String> {
        let place = path_text(&first.path);
        if self.layout != first.layout {
            return Some(format!("expected the columns of {place}, found others"));
        }
        let [expected, found] =
            [first, self].map(|part| EmbeddingWork::new(&part.provenance.options));
        let what = expected.difference(&found)?;
        Some(format!("{what}; all as in {place}"))
    }

    /// Checks that a file has the columns, the work and the set of shards of the `first` part.
    fn check_same(&self, first: &Self) -> Result<(), DatasetError> {
        let (place, own, expected) = (path_text(&first.path), &self.provenance, &first.provenance);
        let what = if self.layout != first.layout {
            format!("expected the columns of {place}, found others")
        } else if let Some(what) = expected.mismatch(own, &format!(" as in {place}")) {
            what
        } else if own.option_differs(expected, SOURCE) {
            format!("not of the same set of shards as {place}")
        } else {
            return Ok(());
        };
        Err(DatasetError::content(&self.path, what))
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

/// A dataset that is open: the ends of all its files are verified, their rows are not read.
#[derive(Debug)]
pub struct Dataset {
    /// Its folder, or its only file.
    pub path: PathBuf,
    /// Its embeddings files, of one work and with the same columns. There is at least one.
    pub parts: Vec<Part>,
    /// Its `dataset.json`, if it has one.
    pub listed: Option<ListedDataset>,
    /// The manifest of its shards, if it has some.
    pub(crate) manifest: Option<Manifest>,
}

impl Dataset {
    /// Opens a folder or an embeddings file. Where `dataset.json` lists the parts and lists of rejects, they must be these; where there
    /// are shards, they and the files beside them must be those of their manifest. If the validation has failed, `on_failed` decides
    /// whether that is an error.
    ///
    /// # Errors
    /// If there are no files, if one is damaged or missing, or if they are not of one work.
    pub fn open(
        path: &Path,
        on_failed: impl FnOnce(DatasetError) -> Result<(), DatasetError>,
        stop: &Stop,
    ) -> Result<Self, DatasetError> {
        let listed = read_dataset(path)?;
        if listed.as_ref().is_some_and(|listed| !listed.passed()) {
            let what = "its validation failed: expected a dataset whose validation passed";
            on_failed(DatasetError::content(&path.join(DATASET_FILE), what))?;
        }
        let has_parts = |listed: &ListedDataset| !listed.embeddings.is_empty();
        let paths = match parts_at(path) {
            // Lost ones are named below.
            Err(_) if listed.as_ref().is_some_and(has_parts) => Vec::new(),
            paths => paths?,
        };
        let mut parts: Vec<Part> = Vec::with_capacity(paths.len());
        for path in &paths {
            StoreError::check(stop)?;
            let part = Part::open(path)?;
            if let Some(first) = parts.first() {
                part.check_same(first)?;
            }
            parts.push(part);
        }
        if let Some(listed) = &listed {
            check_parts(listed, path, &parts)?;
            let mut lists = listed.rejects.clone();
            lists.retain(|list| has_shards(path) || !list.file.starts_with("shards/"));
            read_lists(&lists, path)?;
        }
        let is_combined = |listed: &ListedDataset| listed.combined.is_some();
        let manifest = if listed.as_ref().is_some_and(is_combined) {
            None
        } else {
            read_manifest(path, &parts[0], stop)?
        };
        let path = path.to_owned();
        Ok(Self {
            path,
            parts,
            listed,
            manifest,
        })
    }

    /// Verifies every byte of its parts.
    pub(crate) fn verify(&self, stop: &Stop) -> Result<(), DatasetError> {
        let mut parts = self.parts.iter();
        parts.try_for_each(|part| Ok(part.reopen()?.verify(stop)?))
    }

    /// Returns all files that belong to it.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = own_files(&self.path).into();
        files.extend(self.parts.iter().map(|part| part.path.clone()));
        for lists in [SHARDS, REJECTS] {
            files.extend(visible_in(&self.path.join(lists)).unwrap_or_default());
        }
        files
    }

    /// Returns the columns of all parts.
    pub fn layout(&self) -> &EmbeddingLayout {
        &self.parts[0].layout
    }

    /// Returns the digest of all rows, with their number.
    pub fn digest(&self) -> RowDigest {
        self.parts.iter().map(|part| part.digest).sum()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.digest().rows()
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
        if all().any(|part| part.model != provenance.model) {
            provenance.model = None;
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
        let places = self.layout().places(names);
        places.map_err(|what| DatasetError::content(&self.parts[0].path, what))
    }

    /// Returns the place of a column with one vector for each protein: that with the name, or the only one.
    pub(crate) fn place_of(&self, column: Option<&str>) -> Result<usize, DatasetError> {
        let columns = &self.layout().columns;
        let asked: Vec<String> = column.into_iter().map(str::to_owned).collect();
        let mut places = self.places(&asked)?;
        places.retain(|&place| matches!(columns[place], Column::Pooled { .. }));
        match (places.as_slice(), column) {
            (&[one], _) => Ok(one),
            (_, Some(name)) => Err(DatasetError::usage(format!(
                "--column {name}: expected a column with one vector for each protein"
            ))),
            (_, None) => {
                let names = columns.iter().map(Column::to_string).collect::<Vec<_>>();
                Err(DatasetError::usage(format!(
                    "expected one column with one vector for each protein, found {}: name it with --column",
                    names.join(", ")
                )))
            }
        }
    }

    /// Returns how scores were computed, if there are some.
    pub fn scores(&self) -> Option<&str> {
        self.parts[0].provenance.text_option(SCORES)
    }
}

/// Reads the `dataset.json` of the dataset in `folder`; `None` if there is none.
pub(crate) fn read_dataset(folder: &Path) -> Result<Option<ListedDataset>, DatasetError> {
    let path = folder.join(DATASET_FILE);
    let is_other = folder.exists() && !folder.is_dir();
    if is_other || is_absent(&path) {
        return Ok(None);
    }
    let listed: ListedDataset = read_sealed(&path)?;
    check_contract(&listed.contract).map_err(|what| DatasetError::content(&path, what))?;
    Ok(Some(listed))
}

/// Checks that `parts` are the files of `folder` that `listed` lists, with the listed rows, as far as their footers say.
fn check_parts(listed: &ListedDataset, folder: &Path, parts: &[Part]) -> Result<(), DatasetError> {
    let files = listed.embeddings.iter();
    let files = files.map(|file| (folder.join(&file.file), &*file.digest));
    let mut listed: BTreeMap<PathBuf, &str> = files.collect();
    for part in parts {
        let Some(expected) = listed.remove(&part.path) else {
            let what = format!("not a part of the dataset: {DATASET_FILE} does not list it");
            return Err(DatasetError::content(&part.path, what));
        };
        let found = part.digest;
        if expected != found.to_string() {
            let what = format!(
                "not what {DATASET_FILE} is the verdict of: expected rows {expected}, found {found}"
            );
            return Err(DatasetError::content(&part.path, what));
        }
    }
    listed.keys().next().map_or(Ok(()), |missing| {
        let what = format!("missing, though {DATASET_FILE} lists it");
        Err(DatasetError::missing(missing, what))
    })
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
        let dataset = Dataset::open(&path, Err, &stop).expect("a part");
        let read = || Merge::new(&dataset.parts, [0], &stop).next_rows();
        assert!(read().expect("as it was checked").is_some());
        part(&path, 2.0);
        let error = read().expect_err("another file");
        assert!(error.to_string().contains("it was replaced"), "{error}");
    }
}
