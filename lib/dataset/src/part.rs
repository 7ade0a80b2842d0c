//! An embeddings file of a dataset.

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use plmkit_contract::{
    EmbeddingLayout, EmbeddingWork, N_WINDOWS, Provenance, RowDigest, SOURCE, ordinals,
};
use plmkit_kit::path_text;
use plmkit_store::{EmbeddingsFile, GroupSummary, StoreError};

use crate::error::DatasetError;

/// An embeddings file of a dataset, closed: what its footer says.
#[derive(Clone, Debug)]
pub struct DatasetPart {
    pub path: PathBuf,
    /// The digest of its rows, with their number.
    pub digest: RowDigest,
    pub provenance: Provenance,
    pub layout: EmbeddingLayout,
    /// Its row groups, in the order of the file.
    pub(crate) groups: Vec<GroupSummary>,
    /// What is added to the ordinals of the file.
    pub(crate) offset: u64,
}

impl DatasetPart {
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
        if let Some(what) = self.other_columns(first) {
            return Some(what);
        }
        let [expected, found] =
            [first, self].map(|part| EmbeddingWork::new(&part.provenance.options));
        let what = expected.difference(&found)?;
        Some(format!("{what}; all as in {place}"))
    }

    /// Describes how the columns of a file are others than those of the `first`.
    fn other_columns(&self, first: &Self) -> Option<String> {
        let [expected, found] = [first, self].map(|part| {
            let layout = &part.layout;
            let mut names: Vec<String> = layout.columns.iter().map(ToString::to_string).collect();
            names.extend(layout.stitched.then(|| N_WINDOWS.to_owned()));
            let labels = layout.labels.fields();
            names.extend(labels.map(|field| field.name().clone()));
            format!("{} of {} in {}", names.join(", "), layout.dim, layout.dtype)
        });
        let place = path_text(&first.path);
        (self.layout != first.layout)
            .then(|| format!("expected the columns of {place}, {expected}; found {found}"))
    }

    /// Checks that a file has the columns, the work and the set of shards of the `first` part.
    pub(crate) fn check_same(&self, first: &Self) -> Result<(), DatasetError> {
        let (place, own, expected) = (path_text(&first.path), &self.provenance, &first.provenance);
        let what = if let Some(what) = self.other_columns(first) {
            what
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
