//! A dataset: its parts, and its `dataset.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{mem, slice};

use plmkit_contract::{
    AliasRow, Column, DATASET_FILE, EmbeddingLayout, KERNELS, Kind, ListedDataset, MANIFEST_FILE,
    Manifest, PACKING, Provenance, RowDigest, SAMPLE, SCORES, SOURCE, ShardSummary, alias_rows,
};
use plmkit_kit::Stop;
use plmkit_store::{
    RecordListReader, Shard, StoreError, is_absent, read_sealed, read_shard, visible_in,
};
use serde_json::Value;

use crate::error::DatasetError;
use crate::folder::{REJECTS, SHARDS, has_shards, own_files, parts_at};
use crate::lists::{check_digest, open_list, read_lists, read_manifest};
use crate::part::DatasetPart;

/// A dataset that is open: the ends of all its files are verified, their rows are not read. Several samples of a folder of results are
/// one, too: their rows follow each other, and ordinals go on.
#[derive(Debug)]
pub struct Dataset {
    /// Its folder, or its only file. Of several samples, the folder of results.
    pub path: PathBuf,
    /// Its embeddings files, of one work and with the same columns. There is at least one.
    pub parts: Vec<DatasetPart>,
    /// Its `dataset.json`, if it has one.
    pub listed: Option<ListedDataset>,
    /// The manifest of its shards, if it has some.
    pub(crate) manifest: Option<Manifest>,
    /// Several samples, whose parts are those of this dataset.
    samples: Vec<Dataset>,
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
        let mut parts: Vec<DatasetPart> = Vec::with_capacity(paths.len());
        for path in &paths {
            StoreError::check(stop)?;
            let part = DatasetPart::open(path)?;
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
            samples: Vec::new(),
        })
    }

    /// Returns samples as one dataset.
    pub(crate) fn join(path: &Path, mut samples: Vec<Self>) -> Option<Self> {
        if samples.len() < 2 {
            return samples.pop();
        }
        let (mut parts, mut end) = (Vec::new(), 0);
        for sample in &samples {
            let first = parts.len();
            parts.extend(sample.parts.iter().cloned());
            parts[first..]
                .iter_mut()
                .for_each(|part: &mut DatasetPart| part.shift(end));
            let groups = parts[first..].iter().flat_map(|part| &part.groups);
            end = groups
                .map(|group| group.ordinals.1 + 1)
                .max()
                .unwrap_or(end);
        }
        Some(Self {
            path: path.to_owned(),
            parts,
            listed: None,
            manifest: None,
            samples,
        })
    }

    /// Returns its samples, if there are several; itself otherwise.
    pub fn into_samples(mut self) -> Vec<Self> {
        match mem::take(&mut self.samples) {
            samples if samples.is_empty() => vec![self],
            samples => samples,
        }
    }

    /// Returns its samples, if there are several; itself otherwise.
    pub fn samples(&self) -> &[Self] {
        match &*self.samples {
            [] => slice::from_ref(self),
            samples => samples,
        }
    }

    /// Verifies every byte of its parts.
    pub(crate) fn verify(&self, stop: &Stop) -> Result<(), DatasetError> {
        let mut parts = self.parts.iter();
        parts.try_for_each(|part| Ok(part.reopen()?.verify(stop)?))
    }

    /// Returns all files that belong to it.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.parts.iter().map(|part| part.path.clone()).collect();
        for Self { path, .. } in self.samples() {
            files.extend(own_files(path));
            for lists in [SHARDS, REJECTS] {
                files.extend(visible_in(&path.join(lists)).unwrap_or_default());
            }
        }
        files
    }

    /// Returns the number of records without rows, whose residues others have.
    pub fn copies(&self) -> u64 {
        let manifests = self.samples().iter().flat_map(|sample| &sample.manifest);
        let lists = manifests.flat_map(|of| {
            let known = of.known.as_ref().map(|known| &known.list);
            [of.aliases.as_ref(), known]
        });
        lists.flatten().map(|list| list.rows).sum()
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
    pub fn column_index(&self, column: Option<&str>) -> Result<usize, DatasetError> {
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

    /// Returns the manifest of the shards.
    ///
    /// # Errors
    /// If the dataset has none.
    pub(crate) fn manifest(&self) -> Result<&Manifest, DatasetError> {
        self.manifest.as_ref().ok_or_else(|| {
            let what = "expected shard-*.parquet and manifest.json, which have the residues of the proteins: the folder of a sample has them, and no combined one";
            DatasetError::missing(&self.path.join(SHARDS), what)
        })
    }

    /// Reads a shard.
    pub(crate) fn read_shard(&self, listed: &ShardSummary) -> Result<Shard, DatasetError> {
        let path = self.path.join(SHARDS).join(&listed.file);
        let shard = read_shard(&path)?;
        let digests = [&*listed.digest, &shard.digest.to_string()];
        check_digest(&path, digests, MANIFEST_FILE)?;
        Ok(shard)
    }

    /// Opens the lists of records beside the shards.
    pub(crate) fn lists(&self) -> Result<Vec<(Kind, RecordListReader)>, DatasetError> {
        let shards = self.path.join(SHARDS);
        let lists = self.manifest.iter().flat_map(Manifest::lists);
        let lists = lists.filter_map(|(file, kind, listed)| {
            let opened = open_list(&shards.join(file), kind, &listed?.digest);
            Some(opened.map(|list| (kind, list)))
        });
        lists.collect()
    }

    /// Shows the records that are in no shard, of the list of this kind.
    pub(crate) fn each_record(
        &self,
        kind: Kind,
        stop: &Stop,
        mut see: impl FnMut(&AliasRow<'_>),
    ) -> Result<(), DatasetError> {
        let lists = self.samples().iter().map(Self::lists);
        let lists = lists.collect::<Result<Vec<_>, _>>()?.into_iter().flatten();
        for (_, mut list) in lists.filter(|(of, _)| *of == kind) {
            while let Some(batch) = list.next_batch()? {
                StoreError::check(stop)?;
                alias_rows(&batch).for_each(|row| see(&row));
            }
        }
        Ok(())
    }
}

/// Reads the `dataset.json` of the dataset in `folder`; `None` if there is none.
pub(crate) fn read_dataset(folder: &Path) -> Result<Option<ListedDataset>, DatasetError> {
    let path = folder.join(DATASET_FILE);
    let is_other = folder.exists() && !folder.is_dir();
    if is_other || is_absent(&path) {
        return Ok(None);
    }
    Ok(Some(read_sealed(&path)?))
}

/// Checks that `parts` are the files of `folder` that `listed` lists, with the listed rows, as far as their footers say.
fn check_parts(
    listed: &ListedDataset,
    folder: &Path,
    parts: &[DatasetPart],
) -> Result<(), DatasetError> {
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
    use std::sync::Arc;

    use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
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
