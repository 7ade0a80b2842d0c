//! The embeddings at a path: of the samples in a folder of results, of one dataset, or files without a dataset.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{COMBINED, DATASET_FILE, SAMPLE};
use plmkit_kit::Stop;
use plmkit_store::{StoreError, files_in, is_absent, read_input, visible_in};
use serde::{Deserialize, Serialize};

use crate::dataset::read_dataset;
use crate::folder::{EMBEDDINGS, dataset_folder, has_shards, parts_at};
use crate::{Dataset, DatasetError, DatasetPart};

/// The table of the samples of the last run, in a folder of results.
pub const SUMMARY_FILE: &str = "summary.tsv";

/// Its first line.
pub const SUMMARY_HEADER: &str =
    "sample\trecords\trows\trejected\taliases\tknown\ttruncated\tverdict\tmodel\tmodel_digest\n";

/// A line of it: a sample, the numbers of its records, and the verdict of its validation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SummaryLine {
    #[serde(rename = "sample")]
    pub name: String,
    /// The records of its FASTA.
    pub records: u64,
    /// The rows of its embeddings.
    pub rows: u64,
    /// The records that were rejected.
    pub rejected: u64,
    /// The records whose residues another record has.
    pub aliases: u64,
    /// The records whose residues an earlier dataset has.
    pub known: u64,
    /// The proteins that were truncated.
    pub truncated: u64,
    pub verdict: SampleVerdict,
    /// The name of the model.
    pub model: String,
    pub model_digest: String,
}

/// What the last run found of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SampleVerdict {
    Pass,
    Fail,
    /// Every record was rejected.
    Empty,
    #[default]
    #[serde(rename = "not validated")]
    #[strum(to_string = "not validated")]
    NotValidated,
}

/// Finds embeddings files by what lies at a path. Returns each with the folder of its dataset; one without a dataset with itself.
/// Samples of the last run come in its order, then those of earlier runs, unless `of_last_run`.
///
/// If `verify`, all must be one table of whole datasets whose validation passed, or of files without a dataset; every byte is
/// verified, and `warn` is told which samples are left out, and what no validation covers.
///
/// # Errors
/// If there is no file, or one is not as `verify` requires.
pub fn embeddings_at(
    path: &Path,
    verify: bool,
    of_last_run: bool,
    warn: impl Fn(&Path, &str),
    stop: &Stop,
) -> Result<Vec<(PathBuf, PathBuf)>, DatasetError> {
    let mut found = Vec::new();
    if verify {
        for dataset in datasets_at(path, of_last_run, false, warn, stop)? {
            dataset.verify(stop)?;
            let parts = dataset.parts.into_iter();
            found.extend(parts.map(|part| (dataset.path.clone(), part.path)));
        }
    } else {
        for (place, _) in places(path, of_last_run)? {
            let files = parts_at(&place).unwrap_or_default().into_iter();
            found.extend(files.map(|file| (place.clone(), file)));
        }
    }
    if found.is_empty() {
        return Err(none_at(path));
    }
    Ok(found)
}

/// Opens the datasets at a path. `warn` is told which samples are left out: those that the last run did not validate and, if asked for, those whose validation failed.
fn datasets_at(
    path: &Path,
    of_last_run: bool,
    without_failed: bool,
    warn: impl Fn(&Path, &str),
    stop: &Stop,
) -> Result<Vec<Dataset>, DatasetError> {
    let (mut datasets, mut known) = (Vec::<Dataset>::new(), BTreeSet::new());
    for (place, was_validated) in places(path, of_last_run)? {
        if !was_validated {
            let what = "not validated by the last run, so its rows are left out";
            warn(&place, what);
            continue;
        }
        if let Some(listed) = read_dataset(&place)? {
            // Every record was rejected.
            if listed.passed() && listed.embeddings.is_empty() && parts_at(&place).is_err() {
                continue;
            }
            if without_failed && !listed.passed() {
                warn(&place, "its validation failed, so its rows are left out");
                continue;
            }
        }
        let dataset = Dataset::open(&place, Err, stop)?;
        if dataset.listed.is_none() && (place.is_dir() || datasets.is_empty()) {
            let what = "not validated, so rows may be missing or wrong";
            warn(if place.is_dir() { &place } else { path }, what);
        }
        let first = datasets.first().unwrap_or(&dataset);
        check_together(&dataset, &first.parts[0], &mut known)?;
        datasets.push(dataset);
    }
    Ok(datasets)
}

fn none_at(path: &Path) -> DatasetError {
    let what = "no embeddings: expected DIR/*.parquet, DIR/embeddings/*.parquet or DIR/*/embeddings/*.parquet";
    DatasetError::missing(path, what)
}

impl Dataset {
    /// Opens what lies at a path: a dataset, see [`open`](Self::open), or the samples in a folder of results. `warn` is told which of
    /// these are left out: those that the last run did not validate, and those whose validation failed.
    pub fn open_all(
        path: &Path,
        on_failed: impl FnOnce(DatasetError) -> Result<(), DatasetError>,
        warn: impl Fn(&Path, &str),
        stop: &Stop,
    ) -> Result<Self, DatasetError> {
        if samples_in(path).unwrap_or_default().is_empty() {
            return Self::open(path, on_failed, stop);
        }
        let leaves_out = Cell::new(false);
        let warn = |place: &Path, what: &str| {
            leaves_out.set(true);
            warn(place, what);
        };
        let samples = datasets_at(path, false, true, warn, stop)?;
        Self::join(path, samples).ok_or_else(|| {
            if leaves_out.get() {
                let what = "no sample is left: expected one whose validation passed";
                DatasetError::content(path, what)
            } else {
                none_at(path)
            }
        })
    }

    /// Returns what [`into_samples`](Self::into_samples) has returned, of one dataset or of several, as one.
    ///
    /// # Errors
    /// If there are none, or if they were made differently or have rows in common.
    pub fn from_samples(path: &Path, samples: Vec<Self>) -> Result<Self, DatasetError> {
        let mut known = BTreeSet::new();
        for sample in &samples {
            check_together(sample, &samples[0].parts[0], &mut known)?;
        }
        Self::join(path, samples).ok_or_else(|| none_at(path))
    }
}

/// Finds datasets, or files without one. Of samples of the last run, tells whether they were validated.
fn places(path: &Path, of_last_run: bool) -> Result<Vec<(PathBuf, bool)>, DatasetError> {
    let path = dataset_folder(path.to_owned());
    if path.is_file() || path.join(DATASET_FILE).exists() {
        return Ok(vec![(path, true)]);
    }
    let mut others = samples_in(&path).map_err(StoreError::cannot_open(&path))?;
    let mut places = Vec::new();
    if !others.is_empty() {
        places = last_run(&path)?;
        let listed: BTreeSet<&PathBuf> = places.iter().map(|(sample, _)| sample).collect();
        others.retain(|sample| !of_last_run && !listed.contains(sample));
    } else if is_sample(&path) {
        others.push(path);
    } else {
        others = files_in(&path, &["parquet"]).map_err(StoreError::cannot_open(&path))?;
    }
    places.extend(others.into_iter().map(|place| (place, true)));
    Ok(places)
}

/// The samples in a folder of results; none in that of a dataset.
fn samples_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut samples = visible_in(path)?;
    samples.retain(|sample| is_sample(sample) && !path.join(DATASET_FILE).exists());
    Ok(samples)
}

fn is_sample(path: &Path) -> bool {
    path.join(DATASET_FILE).exists() || has_shards(path) || path.join(EMBEDDINGS).is_dir()
}

/// The samples of the last run, and whether they were validated.
fn last_run(folder: &Path) -> Result<Vec<(PathBuf, bool)>, DatasetError> {
    if is_absent(&folder.join(SUMMARY_FILE)) {
        return Ok(Vec::new());
    }
    let samples = read_summary(folder)?.into_iter();
    let samples = samples.map(|one| {
        (
            folder.join(&one.name),
            one.verdict != SampleVerdict::NotValidated,
        )
    });
    Ok(samples.collect())
}

/// Returns the table of these samples.
///
/// # Panics
/// Never: memory takes every line, and all are texts.
pub fn summary_text<'l>(lines: impl IntoIterator<Item = &'l SummaryLine>) -> String {
    let mut table = csv::WriterBuilder::new();
    let table = table.delimiter(b'\t').quote_style(csv::QuoteStyle::Never);
    let mut table = table.has_headers(false).from_writer(SUMMARY_HEADER.into());
    let mut lines = lines.into_iter();
    lines
        .try_for_each(|line| table.serialize(line))
        .expect("memory");
    String::from_utf8(table.into_inner().expect("memory")).expect("texts")
}

/// Reads the table of the samples of the last run in a folder of results.
///
/// # Errors
/// If there is none, or it is not that of plmkit.
pub fn read_summary(folder: &Path) -> Result<Vec<SummaryLine>, DatasetError> {
    let path = folder.join(SUMMARY_FILE);
    let text = read_input(&path)?;
    let mut lines = csv::ReaderBuilder::new();
    let mut lines = lines.delimiter(b'\t').quoting(false).from_reader(&*text);
    let lines = lines.deserialize().collect::<Result<Vec<SummaryLine>, _>>();
    let is_folder =
        |line: &SummaryLine| Path::new(&line.name).file_name() == Some(line.name.as_ref());
    let is_table =
        |lines: &Vec<_>| text.starts_with(SUMMARY_HEADER.as_bytes()) && lines.iter().all(is_folder);
    let what = "expected the table of samples that plmkit writes, in UTF-8";
    let lines = lines.ok().filter(is_table);
    lines.ok_or_else(|| DatasetError::content(&path, what))
}

/// Checks that rows of a dataset were made like the `first`, and that none of these digests and samples, which are `known` then, have
/// them.
fn check_together(
    dataset: &Dataset,
    first: &DatasetPart,
    known: &mut BTreeSet<String>,
) -> Result<(), DatasetError> {
    let (part, is_folder) = (&dataset.parts[0], dataset.path.is_dir());
    if let Some(what) = part.difference(first) {
        let models = [first, part].map(|part| part.provenance.model.as_ref());
        let [expected, found] = models.map(|model| model.map_or("?", |model| &model.name));
        let what = format!("different models or options: {what}; models {expected}, {found}");
        return Err(DatasetError::content(&dataset.path, what));
    }
    let [is, was] = [part, first].map(|part| part.provenance.options.contains_key(COMBINED));
    let sample = part.provenance.text_option(SAMPLE).filter(|_| is_folder);
    let parts = dataset.parts.iter().filter(|part| part.digest.rows() > 0);
    let rows = parts.map(|part| part.digest.to_string());
    let mut rows = rows.chain(sample.map(str::to_owned));
    if is != was || !rows.all(|rows| known.insert(rows)) {
        let what = "rows may be in several folders, of one sample or combined";
        return Err(DatasetError::content(&dataset.path, what));
    }
    Ok(())
}
