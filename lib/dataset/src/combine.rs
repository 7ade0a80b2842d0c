//! Combines the parts of a dataset into few large files.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plmkit_contract::{
    ByteDigest, COMBINED, CombinedFrom, DATASET_FILE, ListedDataset, ListedFile, Provenance,
    RowDigest, Sealed, Stop, path_text, plural,
};
use plmkit_store::{EmbeddingsFile, EmbeddingsWriter, StoreError, write_report};
use serde_json::json;

use crate::listing::{check_own, combined_listing, read_dataset, read_lists};
use crate::output::NewFolder;
use crate::rejects::Rejects;
use crate::samples::Samples;
use crate::shared::Shared;
use crate::{DatasetError, Merge, OpenedDataset, Parts};

/// The most row groups of a Parquet file: their numbers are 16-bit.
const MOST_GROUPS: usize = i16::MAX as usize;

/// What to combine.
#[derive(Debug)]
pub struct CombineConfig {
    /// The folder to write.
    pub out: PathBuf,
    /// The most rows of a file. Further windows of its last protein follow.
    pub rows_per_file: NonZero<u64>,
    /// Whether to leave out the records whose rows are those of other records of the dataset.
    pub distinct: bool,
    /// Earlier datasets, which have rows of records of this one.
    pub known: Vec<OpenedDataset>,
    /// Whether to replace another combined dataset.
    pub force: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CombineOutcome {
    /// Parts that were read.
    pub parts: usize,
    /// Files of the new dataset.
    pub files: usize,
    /// Rows in them.
    pub rows: u64,
    /// Records that have no row, because another record of the dataset has it.
    pub aliases_left_out: u64,
    /// Records that have no row, because an earlier dataset has it.
    pub known_left_out: u64,
    /// Whether the new dataset was there already.
    pub existing: bool,
}

/// Combines the parts of datasets, whose validation has passed: of one, or of several samples, one after the other. `advance` is told
/// the rows as they are written, and the number of all rows.
pub fn combine(
    config: &CombineConfig,
    datasets: Vec<OpenedDataset>,
    mut advance: impl FnMut(u64, u64),
    stop: &Stop,
) -> Result<CombineOutcome, DatasetError> {
    let datasets = datasets.into_iter().map(|mut dataset| {
        let listed = listed(config, &mut dataset)?;
        Ok((dataset, listed))
    });
    let mut datasets = datasets.collect::<Result<Vec<_>, DatasetError>>()?;
    let (mut parts, listed, mut rejects, shared, shared_before);
    if datasets.len() > 1 {
        if !config.known.is_empty() {
            let what = "--known: expected one dataset with it; combine each alone first";
            return Err(DatasetError::Usage(what.to_owned()));
        }
        let left_out = datasets
            .iter()
            .map(|(_, listed)| listed.without_row())
            .sum();
        shared = Shared {
            left_out: [left_out, 0],
            ..Shared::default()
        };
        Samples {
            parts,
            listed,
            rejects,
            shared: shared_before,
        } = Samples::join(datasets, config.distinct)?;
    } else {
        let Some((dataset, of_one)) = datasets.pop() else {
            return Err(DatasetError::Usage("expected a dataset".to_owned()));
        };
        let folder = dataset.folder.path();
        rejects = Rejects::read(&of_one, folder, &dataset.parts.parts)?;
        shared = Shared::find(config, folder, &dataset.parts, &of_one)?;
        (parts, listed, shared_before) = (dataset.parts, of_one, 0);
    }
    let work = work(config, &parts, &rejects, &shared);
    let mut outcome = CombineOutcome {
        parts: parts.parts.len(),
        files: 0,
        rows: 0,
        aliases_left_out: shared.left_out[0],
        known_left_out: shared.left_out[1],
        existing: true,
    };
    if let Some((files, rows)) = existing(config, &work, stop)? {
        NewFolder::clean_up(&config.out);
        (outcome.files, outcome.rows) = (files, rows);
        return Ok(outcome);
    }
    let new = NewFolder::claim(&config.out)?;
    let truncated = shared.expand(&mut parts, &mut rejects, &new.runs()?, stop)?;
    let parts = &parts;
    let mut advance = |rows| advance(rows, parts.rows());
    let (rejects_digest, lists) = rejects.write(new.work())?;
    let mut provenance = parts
        .provenance()
        .with(COMBINED, &work)
        .with_rejects(rejects_digest);
    provenance.inputs = vec![parts.digest().to_string()];
    let options = (&provenance, config.rows_per_file.get());
    let files = write(new.work(), parts, options, &mut advance, stop)?;
    let written: RowDigest = files.iter().map(|(_, digest)| *digest).sum();
    let expected = parts.digest();
    // Rows with other ordinals have other digests.
    let is_same = parts.parts.iter().all(|part| part.offset == 0);
    if written.rows() != expected.rows() || (is_same && written != expected) {
        let what =
            format!("expected rows {expected}, as the metadata of the parts say, found {written}");
        return Err(DatasetError::content(&parts.parts[0].path, what));
    }
    outcome.existing = false;
    (outcome.files, outcome.rows) = (files.len(), written.rows());
    let files = files.into_iter().map(|(file, _)| file).collect();
    let mut listed = combined_listing(listed, files, work, shared_before + shared.records());
    listed.rejects = lists;
    shared.count(&mut listed, truncated);
    rejects.count_copies(&mut listed);
    write_report(&new.work().join(DATASET_FILE), &listed.to_json())?;
    if let Some((replaced, _)) = combined_at(&config.out)? {
        check_own(&config.out, &replaced)?;
    }
    new.publish()?;
    Ok(outcome)
}

/// Takes the `dataset.json` of a dataset that can be combined.
fn listed(
    config: &CombineConfig,
    dataset: &mut OpenedDataset,
) -> Result<ListedDataset, DatasetError> {
    let folder = dataset.folder.path();
    let listed = dataset.listed.take().ok_or_else(|| {
        let what = format!(
            "expected {DATASET_FILE}, which validate-embeddings --dataset writes: only a complete dataset is combined"
        );
        DatasetError::missing(folder, what)
    })?;
    let shared = listed.combined.as_ref().map_or(0, |from| from.shared);
    if config.distinct && shared > 0 {
        let what = format!(
            "--distinct: {} has rows of {} that other records or datasets have: expected the dataset that it was combined from",
            path_text(folder),
            plural(shared, "record")
        );
        return Err(DatasetError::Usage(what));
    }
    Ok(listed)
}

/// The digest of all that decides the files: the parts, the lists, and the options.
fn work(config: &CombineConfig, parts: &Parts, rejects: &Rejects, shared: &Shared<'_>) -> String {
    let digests = parts.parts.iter().map(|part| part.digest.to_string());
    let work = json!([
        digests.collect::<Vec<_>>(),
        rejects.digests,
        shared.digests(),
        config.rows_per_file
    ]);
    ByteDigest::compute(work.to_string().as_bytes()).to_string()
}

/// The combined dataset in a folder; `None` if there is nothing in it.
fn combined_at(folder: &Path) -> Result<Option<(ListedDataset, CombinedFrom)>, DatasetError> {
    let is_empty = fs::read_dir(folder).is_ok_and(|mut files| files.next().is_none());
    if !folder.exists() || is_empty {
        return Ok(None);
    }
    let found = if folder.is_dir() {
        read_dataset(folder)?
    } else {
        None
    };
    let found = found.and_then(|found| {
        let combined = found.combined.clone()?;
        Some((found, combined))
    });
    let what = "exists, and is not a dataset that combine wrote; expected another path";
    let other = || StoreError::cannot_create(folder)(io::Error::other(what));
    Ok(Some(found.ok_or_else(other)?))
}

/// The files and the rows of the dataset that is at the output's path, verified, if it is the same.
fn existing(
    config: &CombineConfig,
    work: &str,
    stop: &Stop,
) -> Result<Option<(usize, u64)>, DatasetError> {
    let out = &config.out;
    let Some((found, combined)) = combined_at(out)? else {
        return Ok(None);
    };
    if config.force {
        check_own(out, &found)?;
        return Ok(None);
    }
    if combined.work != work {
        let difference = "the parts or the options are not the same";
        return Err(StoreError::exists(out, difference).into());
    }
    read_lists(&found.rejects, out)?;
    for file in &found.embeddings {
        let path = out.join(&file.file);
        let opened = EmbeddingsFile::open(&path).map_err(StoreError::of_existing)?;
        opened.verify(stop).map_err(StoreError::of_existing)?;
        if opened.digest().to_string() != file.digest {
            let what = format!("expected rows {}, as {DATASET_FILE} says", file.digest);
            return Err(DatasetError::content(&path, what));
        }
    }
    let rows = found.embeddings.iter().map(|file| file.rows).sum();
    Ok(Some((found.embeddings.len(), rows)))
}

/// Writes all rows to files in `folder`. Returns the files, with the digests of their rows.
fn write(
    folder: &Path,
    parts: &Parts,
    (provenance, rows_per_file): (&Provenance, u64),
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<Vec<(ListedFile, RowDigest)>, DatasetError> {
    let mut merge = Merge::new(parts, 0..parts.layout.columns.len(), stop);
    let mut files = Vec::new();
    // A dataset without rows has one file.
    while !merge.is_done() || files.is_empty() {
        let name = format!("embeddings/part-{:05}.parquet", files.len());
        let mut writer = EmbeddingsWriter::create(&folder.join(&name), &parts.layout)?;
        let mut rows = 0;
        while writer.row_groups() < MOST_GROUPS - 1
            && let Some(batch) = merge.next(rows_per_file.saturating_sub(rows))?
        {
            writer.write(&batch)?;
            rows += batch.num_rows() as u64;
            advance(batch.num_rows() as u64);
        }
        let digest = writer.finish(provenance)?;
        files.push((ListedFile::from_rows(&name, digest), digest));
    }
    Ok(files)
}
