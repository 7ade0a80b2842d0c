//! The embeddings at a path: of the samples in a folder of results, of one dataset, or files without a dataset.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plmkit_contract::{COMBINED, DATASET_FILE, ListedDataset, SAMPLE, Stop};
use plmkit_store::{StoreError, files_in, is_absent, read_input, visible_in};

use crate::dataset::read_dataset;
use crate::folder::{EMBEDDINGS, dataset_folder, has_shards, parts_at};
use crate::{Dataset, DatasetError, Part};

/// The table of the samples of the last run, in a folder of results.
pub const SUMMARY_FILE: &str = "summary.tsv";

/// Its first line.
pub const SUMMARY_HEADER: &str =
    "sample\trecords\trows\trejected\taliases\tknown\ttruncated\tverdict\tmodel\tmodel_digest\n";

/// Its verdict of a sample that has none.
const NOT_VALIDATED: &str = "not validated";

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
    (verify, of_last_run): (bool, bool),
    warn: impl Fn(&Path, &str),
    stop: &Stop,
) -> Result<Vec<(PathBuf, PathBuf)>, DatasetError> {
    let (mut found, mut first, mut known) = (Vec::new(), None, BTreeSet::new());
    for (place, was_validated) in places(path, of_last_run)? {
        let files = parts_at(&place).unwrap_or_default();
        if verify && !was_validated {
            let what = "not validated by the last run, so its rows are left out";
            warn(&place, what);
            continue;
        }
        // Every record was rejected.
        let is_empty = |listed: ListedDataset| listed.passed() && listed.embeddings.is_empty();
        if verify && !(files.is_empty() && read_dataset(&place)?.is_some_and(is_empty)) {
            let dataset = Dataset::open(&place, Err, stop)?;
            if dataset.listed.is_none() && (place.is_dir() || found.is_empty()) {
                let what = "not validated, so rows may be missing or wrong";
                warn(if place.is_dir() { &place } else { path }, what);
            }
            let first = first.get_or_insert_with(|| dataset.parts[0].clone());
            check_together(&dataset, first, &mut known)?;
            dataset.verify(stop)?;
        }
        found.extend(files.into_iter().map(|file| (place.clone(), file)));
    }
    if found.is_empty() {
        let what = "no embeddings: expected DIR/*.parquet, DIR/embeddings/*.parquet or DIR/*/embeddings/*.parquet";
        return Err(DatasetError::missing(path, what));
    }
    Ok(found)
}

/// Finds datasets, or files without one. Of samples of the last run, tells whether they were validated.
fn places(path: &Path, of_last_run: bool) -> Result<Vec<(PathBuf, bool)>, DatasetError> {
    let path = dataset_folder(path.to_owned());
    let is_dataset = |path: &Path| path.join(DATASET_FILE).exists();
    if path.is_file() || is_dataset(&path) {
        return Ok(vec![(path, true)]);
    }
    let has_parts = |path: &Path| path.join(EMBEDDINGS).is_dir();
    let is_sample = |path: &PathBuf| is_dataset(path) || has_shards(path) || has_parts(path);
    let mut others = visible_in(&path).map_err(StoreError::cannot_open(&path))?;
    others.retain(is_sample);
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

/// The samples in a table of the last run, and whether they were validated.
fn last_run(folder: &Path) -> Result<Vec<(PathBuf, bool)>, DatasetError> {
    let path = folder.join(SUMMARY_FILE);
    if is_absent(&path) {
        return Ok(Vec::new());
    }
    let text = read_input(&path)?;
    let lines = str::from_utf8(&text).ok();
    let lines = lines.and_then(|text| text.strip_prefix(SUMMARY_HEADER));
    let samples = lines.and_then(|lines| {
        let samples = lines.lines().map(|line| {
            let mut cells = line.split('\t');
            let (sample, verdict) = (cells.next()?, cells.nth(6)?);
            let is_known = ["pass", "fail", "empty", NOT_VALIDATED].contains(&verdict);
            is_known.then(|| (folder.join(sample), verdict != NOT_VALIDATED))
        });
        samples.collect()
    });
    let what = "expected the table of samples that plmkit writes, in UTF-8";
    samples.ok_or_else(|| DatasetError::content(&path, what))
}

/// Checks that rows of a dataset were made like the `first`, and that none of these digests and samples, which are `known` then, have
/// them.
fn check_together(
    dataset: &Dataset,
    first: &Part,
    known: &mut BTreeSet<String>,
) -> Result<(), DatasetError> {
    let (part, is_folder) = (&dataset.parts[0], dataset.path.is_dir());
    if let Some(what) = part.difference(first) {
        let what = format!("different models or options: {what}");
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
