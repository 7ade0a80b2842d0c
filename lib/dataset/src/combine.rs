//! Combines the parts of a dataset into few large files.

mod new_folder;
mod samples;
mod shared;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::{fs, io, mem};

use plmkit_contract::{
    ByteDigest, COMBINED, CombinedFrom, DATASET_FILE, Kind, ListedDataset, ListedFile, Provenance,
    Reject, RowDigest, Sealed, no_rejected_rows,
};
use plmkit_kit::{Stop, path_text, plural};
use plmkit_store::{EmbeddingsWriter, ListWriter, StoreError, write_report};
use serde_json::{Value, json};

use crate::dataset::read_dataset;
use crate::folder::REJECTS;
use crate::lists::read_lists;
use crate::{Dataset, DatasetError, DatasetPart, Merge};
use new_folder::NewFolder;

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
    pub known: Vec<Dataset>,
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

/// What is combined: a dataset, or those of several samples, one after the other.
struct Combining<'a> {
    config: &'a CombineConfig,
    /// All parts, in the folder of the first dataset.
    dataset: Dataset,
    /// The `dataset.json` to write.
    listed: ListedDataset,
    /// Rejected records that are in no shard.
    records: Vec<Reject>,
    /// Rows that were not embedded.
    rows: Vec<Reject>,
    /// The digests of the lists of both.
    rejects: Vec<String>,
    /// The lists of records whose rows are added.
    lists: Vec<(&'static str, Kind, ListedFile)>,
    /// The parts of the earlier datasets that have rows of such records, by their number.
    known: Vec<&'a [DatasetPart]>,
    /// The records whose rows are those of other records.
    shared: u64,
    /// The records that are left out: those that another record stands for, and those of earlier datasets.
    left_out: [u64; 2],
}

/// Combines the parts of datasets, whose validation has passed: of one, or of several samples, one after the other. `advance` is told
/// the rows as they are written, and the number of all rows.
pub fn combine(
    config: &CombineConfig,
    datasets: Vec<Dataset>,
    advance: impl FnMut(u64, u64),
    stop: &Stop,
) -> Result<CombineOutcome, DatasetError> {
    let is_one = datasets.len() == 1;
    if !is_one && !config.known.is_empty() {
        let what = "--known: expected one dataset with it; combine each alone first";
        return Err(DatasetError::usage(what));
    }
    let datasets = datasets.into_iter();
    let mut datasets = datasets.map(|dataset| Combining::new(config, dataset));
    let first = datasets.next();
    let mut all = first.unwrap_or_else(|| Err(DatasetError::usage("expected a dataset")))?;
    if is_one {
        all.find_shared()?;
    } else {
        all = all.sample(0)?;
        for next in datasets {
            let end = all.end();
            all.append(next?.sample(end)?)?;
        }
    }
    let work = all.work();
    let mut outcome = CombineOutcome {
        parts: all.dataset.parts.len(),
        files: 0,
        rows: 0,
        aliases_left_out: all.left_out[0],
        known_left_out: all.left_out[1],
        existing: true,
    };
    if let Some(found) = existing(config, &work, stop)? {
        NewFolder::clean_up(&config.out);
        outcome.files = found.len();
        outcome.rows = found.iter().map(|file| file.rows).sum();
        return Ok(outcome);
    }
    let new = NewFolder::claim(&config.out)?;
    outcome.existing = false;
    let written = all.write(&new, work, advance, stop);
    // An error may be that another run has taken the folder over.
    new.check()?;
    (outcome.files, outcome.rows) = written?;
    if let Some(replaced) = combined_at(&config.out)? {
        check_own(&config.out, &replaced)?;
    }
    new.publish()?;
    Ok(outcome)
}

impl<'a> Combining<'a> {
    /// Takes a dataset. Its lists of rejects must be those that its parts know.
    fn new(config: &'a CombineConfig, dataset: Dataset) -> Result<Self, DatasetError> {
        let folder = &dataset.path;
        let Some(listed) = dataset.listed.clone() else {
            let what = format!(
                "expected {DATASET_FILE}, which validate-embeddings --dataset writes: only a complete dataset is combined"
            );
            return Err(DatasetError::missing(folder, what));
        };
        let shared = listed.combined.as_ref().map_or(0, |from| from.shared);
        if config.distinct && shared > 0 {
            return Err(DatasetError::usage(format!(
                "--distinct: {} has rows of {} that other records or datasets have: expected the dataset that it was combined from",
                path_text(folder),
                plural(shared, "record")
            )));
        }
        let lists = read_lists(&listed.rejects, folder)?;
        let mut known = BTreeSet::new();
        for part in &dataset.parts {
            let digest = part.provenance.rejects.clone();
            if let Some(digest) = digest
                .as_ref()
                .filter(|digest| **digest != no_rejected_rows())
                && lists.iter().all(|list| list.digest != *digest)
            {
                let what = format!(
                    "rows were rejected, and expected their list {digest} among {}/*.csv",
                    folder.join(REJECTS).display()
                );
                return Err(DatasetError::missing(&part.path, what));
            }
            known.extend(digest);
        }
        let (mut records, mut rows, mut rejects) = (Vec::new(), Vec::new(), Vec::new());
        for list in lists {
            if !list.of_rows {
                records.extend(list.lines);
            } else if known.contains(&list.digest) {
                rows.extend(list.lines);
            } else {
                continue;
            }
            rejects.push(list.digest);
        }
        rejects.sort();
        Ok(Self {
            config,
            dataset,
            listed,
            records,
            rows,
            rejects,
            lists: Vec::new(),
            known: Vec::new(),
            shared: 0,
            left_out: [0; 2],
        })
    }

    /// Returns the digest of all that decides the files: the parts, the lists, and the options.
    fn work(&self) -> String {
        let parts = self.dataset.parts.iter();
        let parts: Vec<String> = parts.map(|part| part.digest.to_string()).collect();
        let lists = self.lists.iter();
        let lists: Vec<&str> = lists.map(|(.., list)| &*list.digest).collect();
        let work = json!([parts, self.rejects, lists, self.config.rows_per_file]);
        ByteDigest::compute(work.to_string().as_bytes()).to_string()
    }

    /// Writes the dataset that results from `work`. Returns the numbers of its files and rows.
    fn write(
        mut self,
        new: &NewFolder,
        work: String,
        mut advance: impl FnMut(u64, u64),
        stop: &Stop,
    ) -> Result<(usize, u64), DatasetError> {
        self.expand(&new.runs(), stop)?;
        let rejects = self.write_rejects(new.work()?)?;
        let dataset = &self.dataset;
        let provenance = dataset.provenance().with(COMBINED, &work);
        let mut provenance = provenance.with_rejects(rejects);
        let expected = dataset.digest();
        provenance.inputs = vec![expected.to_string()];
        let mut advance = |rows| advance(rows, expected.rows());
        let rows_per_file = self.config.rows_per_file.get();
        let (files, written) = write(new, dataset, &provenance, rows_per_file, &mut advance, stop)?;
        let counts = (files.len(), written.rows());
        let listed = self.listing(files, work, written.rows());
        write_report(&new.work()?.join(DATASET_FILE), &listed.to_json())?;
        Ok(counts)
    }

    /// Writes one list of rows, in the order of the input, and a copy of the list of records. No empty list is written. Returns the
    /// digest of the list of rows.
    fn write_rejects(&mut self, folder: &Path) -> Result<String, DatasetError> {
        let key = |line: &Reject| (line.ordinal, line.start);
        self.rows.sort_unstable_by_key(key);
        let mut digest = no_rejected_rows();
        self.listed.rejects.clear();
        for (name, lines) in [("records.csv", &self.records), ("rows.csv", &self.rows)] {
            if lines.is_empty() {
                continue;
            }
            let name = format!("{REJECTS}/{name}");
            let path = folder.join(&name);
            let made = fs::create_dir_all(folder.join(REJECTS));
            made.map_err(StoreError::cannot_create(&path))?;
            let of_rows = lines[0].start.is_some();
            let mut writer = if of_rows {
                ListWriter::create_rejected_rows(&path)
            } else {
                ListWriter::create_rejects(&path)
            }?;
            lines.iter().try_for_each(|line| writer.push(line))?;
            let (found, file) = writer.finish()?;
            let list = ListedFile::new(&name, lines.len() as u64, &found);
            self.listed.rejects.push(list);
            file.finish()?;
            if of_rows {
                digest = found;
            }
        }
        Ok(digest)
    }

    /// Returns the list of the dataset that `files` hold: what was found of its parts holds of their rows.
    fn listing(self, files: Vec<ListedFile>, work: String, rows: u64) -> ListedDataset {
        let mut listed = self.listed;
        let parts = mem::replace(&mut listed.embeddings, files);
        // What was combined before was made of the same parts.
        let (parts, before) = match listed.combined.take() {
            Some(from) => (from.parts, from.shared),
            None => (parts, 0),
        };
        let shared = before + self.shared;
        listed.combined = Some(CombinedFrom {
            work,
            parts,
            shared,
        });
        let others = [
            ("rows", json!(rows)),
            ("shards", json!([])),
            ("manifest", Value::Null),
        ];
        let others = others.map(|(name, value)| (name.to_owned(), value));
        listed.others.extend(others);
        listed
    }
}

/// The combined dataset in a folder; `None` if there is nothing in it.
fn combined_at(folder: &Path) -> Result<Option<ListedDataset>, DatasetError> {
    let is_empty = fs::read_dir(folder).is_ok_and(|mut files| files.next().is_none());
    if !folder.exists() || is_empty {
        return Ok(None);
    }
    let is_folder = folder.is_dir();
    let found = is_folder.then(|| read_dataset(folder)).transpose()?;
    let found = found.flatten().filter(|found| found.combined.is_some());
    let what = "exists, and is not a dataset that combine wrote; expected another path";
    let other = || StoreError::cannot_create(folder)(io::Error::other(what));
    Ok(Some(found.ok_or_else(other)?))
}

/// The files of the dataset that is at the output's path, verified, if it is the same.
fn existing(
    config: &CombineConfig,
    work: &str,
    stop: &Stop,
) -> Result<Option<Vec<ListedFile>>, DatasetError> {
    let out = &config.out;
    let Some(found) = combined_at(out)? else {
        return Ok(None);
    };
    if config.force {
        check_own(out, &found)?;
        return Ok(None);
    }
    if found.combined.as_ref().is_none_or(|from| from.work != work) {
        let difference = "the parts or the options are not the same";
        return Err(StoreError::exists(out, difference).into());
    }
    let of_existing = |error| match error {
        DatasetError::Store(error) => error.of_existing().into(),
        error @ DatasetError::Unfit(_) => error,
    };
    let verified = Dataset::open(out, Err, stop).and_then(|found| found.verify(stop));
    verified.map_err(of_existing)?;
    Ok(Some(found.embeddings))
}

/// Checks that `combine` wrote every file of the folder that it is to replace, whose list is `listed`.
fn check_own(out: &Path, listed: &ListedDataset) -> Result<(), StoreError> {
    let files = listed.embeddings.iter().chain(&listed.rejects);
    let files = files.map(|file| &*file.file).chain([DATASET_FILE]);
    let own: BTreeSet<PathBuf> = files.map(|file| out.join(file)).collect();
    let mut folders = vec![out.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = StoreError::cannot_open(&folder);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            if is_folder && own.iter().any(|file| file.starts_with(&path)) {
                folders.push(path);
            } else if !own.contains(&path) {
                let stray = path_text(&path);
                let what = format!("--force would remove {stray}, which combine did not write");
                return Err(StoreError::cannot_create(out)(io::Error::other(what)));
            }
        }
    }
    Ok(())
}

/// Writes all rows to files in the new folder. Returns the files, and the digest of their rows.
fn write(
    new: &NewFolder,
    dataset: &Dataset,
    provenance: &Provenance,
    rows_per_file: u64,
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<(Vec<ListedFile>, RowDigest), DatasetError> {
    let mut merge = Merge::new(&dataset.parts, dataset.places(&[])?, stop);
    let (mut files, mut all) = (Vec::new(), RowDigest::default());
    // A dataset without rows has one file.
    while !merge.is_done() || files.is_empty() {
        let name = format!("embeddings/part-{:05}.parquet", files.len());
        let mut writer = EmbeddingsWriter::create(&new.work()?.join(&name), dataset.layout())?;
        let mut rows = 0;
        while writer.row_groups() < MOST_GROUPS - 1
            && let Some(batch) = merge.next(rows_per_file.saturating_sub(rows))?
        {
            writer.write(&batch)?;
            rows += batch.num_rows() as u64;
            advance(batch.num_rows() as u64);
        }
        let digest = writer.finish(provenance)?;
        files.push(ListedFile::from_rows(&name, digest));
        all = [all, digest].into_iter().sum();
    }
    Ok((files, all))
}
