//! Repeated runs of the same work.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::run::RunSummary;
use super::{percent, share};
use plmkit_logs::Mean;

/// Runs of the same job on the same kind of machine. A job is a digest of the inputs and of the options that decide the
/// content of the output. Device, GPU names, number type, workers, threads and the program's version are the same, too. Only
/// runs that one process did from the beginning to the end are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Repeats {
    /// The job.
    pub job: String,
    /// The sample.
    pub sample: Option<String>,
    /// The names of the runs, two or more.
    pub runs: Vec<String>,
    /// Seconds of a run, without loading.
    pub elapsed_s: Option<Spread>,
    /// Seconds of loading the model.
    pub load_s: Option<Spread>,
    /// Sequences a second.
    pub sequences_per_s: Option<Spread>,
    /// Tokens a second.
    pub tokens_per_s: Option<Spread>,
    /// Share of the time without work.
    pub idle_share: Option<Spread>,
    /// Energy of the GPUs, in joules.
    pub energy_j: Option<Spread>,
}

/// A figure over repeated runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample: the sum of squares is divided by one less than the number of runs.
    pub stddev: f64,
    /// The coefficient of variation: the standard deviation over the mean.
    pub cv: Option<f64>,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

impl Repeats {
    /// Returns the throughput in a sentence.
    pub(super) fn sentence(&self) -> Option<String> {
        let (sequences, tokens) = (self.sequences_per_s.as_ref()?, self.tokens_per_s.as_ref()?);
        let work = self.sample.as_ref().unwrap_or(&self.job);
        let (count, last) = (self.runs.len(), self.runs.last()?);
        Some(format!(
            "{count} repeats of the same work ({work}), the last {last}: {sequences} sequences/s, {tokens} tokens/s"
        ))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ± {:.1} ", self.mean, self.stddev)?;
        let cv = self.cv.map(|cv| percent(cv) + ", ").unwrap_or_default();
        write!(f, "({cv}{:.1} to {:.1})", self.min, self.max)
    }
}

/// Returns the groups of two runs and more, in the order of their first runs.
pub(super) fn repeats(runs: &[RunSummary]) -> Vec<Repeats> {
    let mut places = HashMap::new();
    let mut groups: Vec<Vec<&RunSummary>> = Vec::new();
    let is_whole = |run: &&RunSummary| {
        run.job.is_some() && run.is_done() && run.attempts == 1 && run.batches_saved.is_none()
    };
    for run in runs.iter().filter(is_whole) {
        let work = (&run.job, &run.version, &run.dtype);
        let device = (&run.device, &run.gpu_names, run.workers, run.threads);
        let place = *places.entry((work, device)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(run);
    }
    groups.retain(|group| group.len() > 1);
    groups.iter().map(|group| summary(group)).collect()
}

fn summary(runs: &[&RunSummary]) -> Repeats {
    let spread = |of: fn(&RunSummary) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().map(|run| of(run)).collect::<Option<_>>()?;
        Spread::new(&values)
    };
    Repeats {
        job: runs[0].job.clone().unwrap_or_default(),
        sample: runs[0].sample.clone(),
        runs: runs.iter().map(|run| run.run.clone()).collect(),
        elapsed_s: spread(|run| run.elapsed_s),
        load_s: spread(|run| run.load_s),
        sequences_per_s: spread(|run| run.throughput.sequences_per_s),
        tokens_per_s: spread(|run| run.throughput.tokens_per_s),
        idle_share: spread(|run| Some(run.idle?.share)),
        energy_j: spread(|run| run.efficiency.energy_j),
    }
}

impl Spread {
    /// Returns `None` for less than two values.
    pub(super) fn new(values: &[f64]) -> Option<Self> {
        let mut all = Mean::default();
        all.extend(values.iter().copied());
        let mean = all.mean()?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let others = values.len().checked_sub(1).filter(|&others| others > 0)?;
        let stddev = (squares / others as f64).sqrt();
        Some(Self {
            mean,
            stddev,
            cv: share(stddev, mean),
            min: all.min()?,
            max: all.max()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_needs_two_values() {
        let expected = Spread {
            mean: 5.0,
            stddev: 2.0_f64.sqrt(),
            cv: Some(2.0_f64.sqrt() / 5.0),
            min: 4.0,
            max: 6.0,
        };
        assert_eq!(Spread::new(&[4.0, 6.0]), Some(expected));
        assert_eq!((Spread::new(&[4.0]), Spread::new(&[])), (None, None));
    }
}
