//! Combines the parts of a dataset into few large files.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::slice;
use std::{fs, io};

use plmkit_contract::{
    ByteDigest, COMBINED, CombinedFrom, DATASET_FILE, ListedDataset, ListedFile, Provenance,
    RowDigest, Sealed, Stop, path_text, plural,
};
use plmkit_store::{
    EmbeddingsFile, EmbeddingsWriter, GroupSummary, ROW_GROUP_BYTES, ROW_GROUP_ROWS, StoreError,
    write_report,
};
use serde_json::json;

use crate::listing::{check_own, combined_listing, read_dataset, read_lists};
use crate::merge::Piece;
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
    /// Row groups that were copied without decoding.
    pub copied: usize,
    /// Records that have no row, because another record of the dataset has it.
    pub aliases_left_out: u64,
    /// Records that have no row, because an earlier dataset has it.
    pub known_left_out: u64,
    /// Whether the new dataset was there already.
    pub existing: bool,
}

/// Combines the parts of datasets, whose validation has passed: of one, or of several samples, one after the other. `advance` is told
/// the rows as they are written, those of an interrupted run first, and the number of all rows.
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
        copied: 0,
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
    let provenance = parts
        .provenance()
        .with(COMBINED, &work)
        .with_rejects(rejects_digest);
    let mut combining = Combining {
        folder: new.work(),
        parts,
        provenance,
        rows_per_file: config.rows_per_file.get(),
        files: Vec::new(),
        copied: 0,
    };
    let after = combining.resume(stop, &mut advance)?;
    combining.write(after, stop, &mut advance)?;
    let (files, copied) = (combining.files, combining.copied);
    let digest = |files: &[(ListedFile, RowDigest)]| files.iter().map(|file| file.1).sum();
    let written: RowDigest = digest(&files);
    let expected = parts.digest();
    // Rows with other ordinals have other digests.
    let is_same = parts.parts.iter().all(|part| part.offset == 0);
    if written.rows() != expected.rows() || (is_same && written != expected) {
        let what =
            format!("expected rows {expected}, as the metadata of the parts say, found {written}");
        return Err(DatasetError::content(&parts.parts[0].path, what));
    }
    outcome.existing = false;
    (outcome.files, outcome.rows, outcome.copied) = (files.len(), written.rows(), copied);
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
        rejects.digests(),
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
    read_lists(&found, out)?;
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

/// Whether a row group is large enough to stay as it is.
fn is_large(group: &GroupSummary) -> bool {
    group.bytes >= ROW_GROUP_BYTES as u64 / 2 || group.rows >= ROW_GROUP_ROWS / 2
}

/// Files under construction.
struct Combining<'a> {
    folder: &'a Path,
    parts: &'a Parts,
    provenance: Provenance,
    rows_per_file: u64,
    /// The finished files, with the digests of their rows.
    files: Vec<(ListedFile, RowDigest)>,
    /// Row groups that were copied.
    copied: usize,
}

impl Combining<'_> {
    fn name(&self) -> String {
        format!("embeddings/part-{:05}.parquet", self.files.len())
    }

    fn add(&mut self, digest: RowDigest) {
        self.files.push((
            ListedFile {
                file: self.name(),
                rows: digest.rows(),
                digest: digest.to_string(),
            },
            digest,
        ));
    }

    /// Keeps the files that an interrupted run finished, and removes others. Returns the last ordinal in them.
    fn resume(
        &mut self,
        stop: &Stop,
        advance: &mut impl FnMut(u64),
    ) -> Result<Option<u64>, DatasetError> {
        let mut after = None;
        loop {
            let path = self.folder.join(self.name());
            let Ok(file) = EmbeddingsFile::open(&path) else {
                break;
            };
            let is_same = file.provenance().options == self.provenance.options
                && file.provenance().rejects == self.provenance.rejects;
            match file.verify(stop) {
                Ok(()) if is_same => {}
                Err(StoreError::Stopped) => return Err(DatasetError::stopped()),
                _ => break,
            }
            let groups = file.groups()?;
            after = groups.last().map_or(after, |group| Some(group.ordinals.1));
            advance(file.digest().rows());
            self.add(file.digest());
        }
        let kept: BTreeSet<PathBuf> = self
            .files
            .iter()
            .map(|(file, _)| self.folder.join(&file.file))
            .collect();
        let embeddings = self.folder.join("embeddings");
        let failed = StoreError::cannot_write(&embeddings);
        for entry in fs::read_dir(&embeddings).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if !kept.contains(&path) {
                plmkit_store::remove_file(&path)?;
            }
        }
        Ok(after)
    }

    /// Writes all rows after the ordinal `after`.
    fn write(
        &mut self,
        after: Option<u64>,
        stop: &Stop,
        advance: &mut impl FnMut(u64),
    ) -> Result<(), DatasetError> {
        let columns = 0..self.parts.layout.columns.len();
        let mut merge = Merge::new(self.parts, columns, after, stop);
        // A dataset without rows has one file.
        while !merge.is_done() || self.files.is_empty() {
            let path = self.folder.join(self.name());
            let mut writer = EmbeddingsWriter::create(&path, &self.parts.layout)?;
            let mut rows = 0;
            let mut sources = BTreeSet::new();
            let mut copied = Copied::default();
            while writer.row_groups() < MOST_GROUPS - 1 {
                let room = self.rows_per_file.saturating_sub(rows);
                // A small row group would be left before a copied one.
                let may_copy = !(f64::MIN_POSITIVE..0.25).contains(&writer.fullness());
                let piece = merge.next(room, |group| may_copy && is_large(group))?;
                let count = match piece {
                    None => break,
                    Some(Piece::Group {
                        part,
                        group,
                        file,
                        summary,
                    }) => {
                        writer.copy(&file, group)?;
                        copied.0.entry(part).or_default().push(group);
                        sources.insert(part);
                        summary.rows
                    }
                    Some(Piece::Rows { rows, parts }) => {
                        writer.write(&rows)?;
                        sources.extend(parts);
                        rows.num_rows()
                    }
                };
                rows += count as u64;
                advance(count as u64);
            }
            self.copied += copied.0.values().map(Vec::len).sum::<usize>();
            writer.add_digest(copied.digest(self.parts, stop)?);
            let inputs = sources
                .into_iter()
                .map(|part| self.parts.parts[part].input.clone())
                .collect::<BTreeSet<_>>();
            let provenance = Provenance {
                inputs: inputs.into_iter().collect(),
                ..self.provenance.clone()
            };
            let summary = writer.finish(&provenance)?;
            self.add(summary.digest);
        }
        Ok(())
    }
}

/// The row groups of each part that were copied into a file.
#[derive(Default)]
struct Copied(BTreeMap<usize, Vec<usize>>);

impl Copied {
    /// The digest of their rows. Where a whole part was copied, its metadata have it.
    fn digest(&self, parts: &Parts, stop: &Stop) -> Result<RowDigest, DatasetError> {
        let mut digest = RowDigest::default();
        for (&part, groups) in &self.0 {
            let part = &parts.parts[part];
            let mut rows = RowDigest::default();
            if groups.len() == part.groups.len() {
                rows = part.digest;
            } else {
                let file = part.reopen()?;
                for &group in groups {
                    add_rows(&mut rows, &file, group, part.groups[group], stop)?;
                }
            }
            digest = [digest, rows].into_iter().sum();
        }
        Ok(digest)
    }
}

/// Adds the rows of a row group to a digest.
fn add_rows(
    digest: &mut RowDigest,
    file: &EmbeddingsFile,
    group: usize,
    summary: GroupSummary,
    stop: &Stop,
) -> Result<(), DatasetError> {
    let most = (summary.rows / (summary.bytes >> 23).max(1) as usize).max(1);
    let mut starts = file.page_starts(group)?;
    starts.push(summary.rows);
    let mut start = 0;
    while start < summary.rows {
        if stop.requested() {
            return Err(DatasetError::stopped());
        }
        let page = starts[..starts.partition_point(|&page| page <= start + most)].last();
        let end = page.copied().filter(|&page| page > start);
        let end = end.unwrap_or(start + most).min(summary.rows);
        let rows = file.read(
            group,
            slice::from_ref(&(start..end)),
            0..file.schema().fields().len(),
        )?;
        digest
            .update(&rows)
            .map_err(|error| DatasetError::content(file.path(), error.to_string()))?;
        start = end;
    }
    Ok(())
}
