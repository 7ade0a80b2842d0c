//! Datasets of several samples as one: the ordinals of each follow those of the one before.

use plmkit_contract::{ListedDataset, SAMPLE};
use plmkit_kit::{path_text, plural};
use serde_json::{Map, Value, json};

use super::Combining;
use crate::DatasetError;

impl Combining<'_> {
    /// Takes the dataset as one of several samples, whose ordinals begin at `offset`.
    ///
    /// # Errors
    /// If its rows do not name their sample, or if it has records without rows and the config is not `distinct`.
    pub(super) fn sample(mut self, offset: u64) -> Result<Self, DatasetError> {
        if !self.dataset.parts[0].layout.labels.sample {
            let what = "expected a column sample to tell several samples apart: fasta-shard --sample adds it";
            return Err(DatasetError::content(&self.dataset.parts[0].path, what));
        }
        let left_out = self.listed.without_row();
        if left_out > 0 && !self.config.distinct {
            return Err(DatasetError::usage(format!(
                "{}: {} have no rows of their own: combine this dataset alone first, or choose --distinct",
                path_text(&self.dataset.path),
                plural(left_out, "record"),
            )));
        }
        self.left_out[0] = left_out;
        self.dataset
            .parts
            .iter_mut()
            .for_each(|part| part.shift(offset));
        let lines = self.records.iter_mut().chain(&mut self.rows);
        lines.for_each(|line| line.ordinal += offset);
        if let Some(from) = self.listed.combined.take() {
            self.shared = from.shared;
            self.listed.embeddings = from.parts;
        }
        let sample = self.dataset.parts[0].provenance.text_option(SAMPLE);
        let sample = sample.unwrap_or_default().to_owned();
        for file in &mut self.listed.embeddings {
            file.file = format!("{sample}/{}", file.file);
        }
        self.listed.sample = Some(sample);
        Ok(self)
    }

    /// Returns the ordinal after the last.
    pub(super) fn end(&self) -> u64 {
        let groups = self.dataset.parts.iter().flat_map(|part| &part.groups);
        let lines = self.records.iter().chain(&self.rows);
        let ordinals = groups.map(|group| group.ordinals.1);
        let ordinals = ordinals.chain(lines.map(|line| line.ordinal));
        ordinals.max().map_or(0, |last| last + 1)
    }

    /// Adds a further sample.
    ///
    /// # Errors
    /// If its vectors were not made alike, or if it has the name of a sample before it.
    pub(super) fn append(&mut self, other: Self) -> Result<(), DatasetError> {
        let (first, next) = (&self.dataset.parts[0], &other.dataset.parts[0]);
        let sample = next.provenance.text_option(SAMPLE).unwrap_or_default();
        let is_known = |name: &&str| {
            let known = self.dataset.parts.iter();
            let mut known = known.filter_map(|part| part.provenance.text_option(SAMPLE));
            known.any(|names| names.split(", ").any(|known| known == *name))
        };
        let what = if let Some(what) = next.difference(first) {
            what
        } else if let Some(same) = sample.split(", ").find(is_known) {
            format!("expected other samples than in the datasets before, found {same} again")
        } else {
            self.dataset.parts.extend(other.dataset.parts);
            self.records.extend(other.records);
            self.rows.extend(other.rows);
            self.rejects.extend(other.rejects);
            self.left_out[0] += other.left_out[0];
            self.shared += other.shared;
            add(&mut self.listed, other.listed);
            return Ok(());
        };
        Err(DatasetError::content(&next.path, what))
    }
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
            // Whole numbers are counts.
            (value, more) if value.is_u64() && more.is_u64() => *value = sum(value, more),
            (Value::Object(counts), Value::Object(more)) if name == "rejected" => {
                for (name, more) in more {
                    let count = counts.entry(name).or_insert(json!(0));
                    *count = sum(count, more);
                }
            }
            (Value::Array(inputs), Value::Array(more)) if name == "inputs" => {
                inputs.extend(more.iter().cloned());
            }
            (value, more) if value != more => *value = Value::Null,
            _ => {}
        }
    }
}

/// Adds to a count of `dataset.json`, if it has it.
pub(super) fn add_to(counts: &mut Map<String, Value>, name: &str, more: u64) {
    if let Some(count) = counts.get_mut(name).filter(|count| count.is_u64()) {
        *count = sum(count, &json!(more));
    }
}

fn sum(one: &Value, other: &Value) -> Value {
    let [one, other] = [one, other].map(|count| count.as_u64().unwrap_or_default());
    json!(one + other)
}
