//! Datasets of several samples as one.

use std::collections::BTreeSet;

use plmkit_contract::{EmbeddingWork, ListedDataset, SAMPLE, path_text, plural};
use serde_json::{Map, Value, json};

use crate::rejects::Rejects;
use crate::{DatasetError, OpenedDataset, Part, Parts};

/// The counts of `dataset.json`.
const COUNTS: [&str; 6] = [
    "aliases",
    "known",
    "records",
    "residues_truncated",
    "rows",
    "truncated",
];

/// Datasets of several samples as one: the ordinals of each follow those of the one before.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) parts: Parts,
    pub(crate) listed: ListedDataset,
    pub(crate) rejects: Rejects,
    /// The records whose rows are those of other records.
    pub(crate) shared: u64,
}

impl Samples {
    /// Joins datasets with their `dataset.json`, in this order. Those with records without rows are refused unless `distinct`.
    ///
    /// # Errors
    /// If their vectors were not made alike, or if they have no sample, or the same.
    pub(crate) fn join(
        datasets: Vec<(OpenedDataset, ListedDataset)>,
        distinct: bool,
    ) -> Result<Self, DatasetError> {
        let mut joined: Option<Self> = None;
        let mut next = 0;
        for (dataset, mut listed) in datasets {
            let OpenedDataset {
                folder, mut parts, ..
            } = dataset;
            check(&parts, joined.as_ref())?;
            let left_out = listed.without_row();
            if left_out > 0 && !distinct {
                let what = format!(
                    "{}: {} have no rows of their own: combine this dataset alone first, or choose --distinct",
                    path_text(folder.path()),
                    plural(left_out, "record"),
                );
                return Err(DatasetError::Usage(what));
            }
            let mut rejects = Rejects::read(&listed, folder.path(), &parts.parts)?;
            let rejected = rejects.shift(next);
            parts.parts.iter_mut().for_each(|part| part.shift(next));
            let mut shared = 0;
            if let Some(from) = listed.combined.take() {
                shared = from.shared;
                listed.embeddings = from.parts;
            }
            let sample = parts.parts[0].provenance.text_option(SAMPLE);
            let sample = sample.unwrap_or_default().to_owned();
            for file in &mut listed.embeddings {
                file.file = format!("{sample}/{}", file.file);
            }
            listed.sample = Some(sample);
            let groups = parts.parts.iter().flat_map(|part| &part.groups);
            let last = groups.map(|group| group.ordinals.1).max();
            next = last.max(rejected).map_or(next, |last| last + 1);
            match &mut joined {
                None => {
                    joined = Some(Self {
                        parts,
                        listed,
                        rejects,
                        shared,
                    });
                }
                Some(joined) => {
                    joined.parts.parts.extend(parts.parts);
                    joined.rejects.extend(rejects);
                    joined.shared += shared;
                    add(&mut joined.listed, listed);
                }
            }
        }
        joined.ok_or_else(|| DatasetError::Usage("expected a dataset".to_owned()))
    }
}

/// Checks that the parts of a further sample fit those before.
fn check(parts: &Parts, before: Option<&Samples>) -> Result<(), DatasetError> {
    let path = &parts.parts[0].path;
    if !parts.layout.labels.sample {
        let what =
            "expected a column sample to tell several samples apart: pack-batches --sample adds it";
        return Err(DatasetError::content(path, what));
    }
    let Some(Samples { parts: before, .. }) = before else {
        return Ok(());
    };
    let first = &before.parts[0];
    let [expected, found] =
        [first, &parts.parts[0]].map(|part| EmbeddingWork::new(&part.provenance.options));
    let place = path_text(&first.path);
    let names = |part: &Part| {
        let names = part.provenance.text_option(SAMPLE).unwrap_or_default();
        names.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let known: BTreeSet<String> = before.parts.iter().flat_map(names).collect();
    let again = names(&parts.parts[0])
        .into_iter()
        .find(|name| known.contains(name));
    let what = if before.layout != parts.layout {
        format!("expected the columns of {place}, found others")
    } else if let Some(what) = expected.difference(&found) {
        format!("{what}; all as in {place}")
    } else if let Some(same) = again {
        format!("expected other samples than in the datasets before, found {same} again")
    } else {
        return Ok(());
    };
    Err(DatasetError::content(path, what))
}

/// Adds what `dataset.json` says of a further sample: counts and inputs. What differs otherwise is null.
fn add(listed: &mut ListedDataset, other: ListedDataset) {
    listed.embeddings.extend(other.embeddings);
    let names = [listed.sample.take(), other.sample].into_iter().flatten();
    listed.sample = Some(names.collect::<Vec<_>>().join(", "));
    if listed.shard_options != other.shard_options {
        listed.shard_options = None;
    }
    for (name, value) in &mut listed.others {
        let more = other.others.get(name).unwrap_or(&Value::Null);
        match (&mut *value, more) {
            (Value::Number(_), Value::Number(_)) if COUNTS.contains(&&**name) => {
                *value = sum(value, more);
            }
            (Value::Object(counts), Value::Object(more)) if name == "rejected" => {
                add_counts(counts, more);
            }
            (Value::Array(inputs), Value::Array(more)) if name == "inputs" => {
                inputs.extend(more.iter().cloned());
            }
            (value, more) if value != more => *value = Value::Null,
            _ => {}
        }
    }
}

fn add_counts(counts: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, more) in more {
        let count = counts.entry(name).or_insert(json!(0));
        *count = sum(count, more);
    }
}

fn sum(one: &Value, other: &Value) -> Value {
    let [one, other] = [one, other].map(|count| count.as_u64().unwrap_or_default());
    json!(one + other)
}
