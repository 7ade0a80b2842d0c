//! The runs of a sample together.

use std::collections::{BTreeMap, HashSet};

use plmkit_contract::plural;
use serde::Serialize;

use super::run::RunSummary;
use super::{joined, percent, share};

/// Sums over the runs of a sample: one for each of its shards, and more where work was repeated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleTotals {
    /// The name of the sample.
    pub sample: String,
    /// Runs.
    pub runs: u64,
    /// Different jobs among them: shards, unless one was computed with several options; `None` if a run does not name its job.
    pub shards: Option<u64>,
    /// Runs that did not end as `done`.
    pub unfinished: u64,
    /// Sequences (rows) computed.
    pub sequences: u64,
    /// Residues computed.
    pub residues: u64,
    /// Tokens computed.
    pub tokens: u64,
    /// Sequences (rows) that could not be embedded.
    pub rejected: u64,
    /// Seconds of all runs, one after the other, without loading.
    pub elapsed_s: Option<f64>,
    /// Sequences for each second of a run.
    pub sequences_per_s: Option<f64>,
    /// Tokens for each second of a run.
    pub tokens_per_s: Option<f64>,
    /// Hours of GPUs, with loading the model; 0 on CPUs. `None` if the GPUs or the time of a run are unknown.
    pub gpu_hours: Option<f64>,
    /// Energy of the GPUs, in joules; `None` if that of a run is unknown.
    pub energy_j: Option<f64>,
    /// Mean token utilisation over the batches of all runs, last batches of files left out.
    pub mean_packing: Option<f64>,
    /// Time without work over the time of all runs, weighted by their elapsed time; `None` if that of a run is unknown.
    pub idle_share: Option<f64>,
}

impl SampleTotals {
    /// Returns the sums in a sentence, if there are several runs.
    pub(super) fn sentence(&self) -> Option<String> {
        let runs = plural(self.runs, "run");
        let packing = self.mean_packing.map(percent);
        let idle = self.idle_share.map(percent);
        let hours = self.gpu_hours.filter(|&hours| hours > 0.0);
        let rates = self.sequences_per_s.zip(self.tokens_per_s);
        let parts = [
            Some(format!("sample {}: {runs}", self.sample)),
            self.shards.map(|shards| plural(shards, "shard")),
            Some(plural(self.sequences, "sequence")),
            Some(plural(self.tokens, "token")),
            hours.map(|hours| format!("{hours:.3} GPU hours")),
            self.energy_j.map(|joules| format!("{joules:.0} J")),
            packing.map(|mean| format!("packing {mean}")),
            idle.map(|share| format!("{share} without work")),
            rates.map(|(sequences, tokens)| {
                format!("{sequences:.1} sequences and {tokens:.0} tokens for each second of a run")
            }),
        ];
        (self.runs > 1).then(|| joined(parts, ", "))
    }
}

/// Returns the totals of each sample that runs name.
pub(super) fn by_sample(runs: &[RunSummary]) -> Vec<SampleTotals> {
    let mut samples: BTreeMap<&str, Vec<&RunSummary>> = BTreeMap::new();
    for run in runs {
        if let Some(sample) = &run.sample {
            samples.entry(sample).or_default().push(run);
        }
    }
    let mut samples: Vec<_> = samples.into_iter().collect();
    samples.sort_by_cached_key(|(sample, _)| natural(sample));
    let totals = samples.iter().map(|(sample, runs)| totals(sample, runs));
    totals.collect()
}

/// Returns a name with its numbers padded, so that 2 comes before 10.
fn natural(name: &str) -> String {
    let ended = format!("{name}\0");
    let pieces = ended.split_inclusive(|letter: char| !letter.is_ascii_digit());
    let padded: Vec<String> = pieces.map(|piece| format!("{piece:0>20}")).collect();
    padded.concat()
}

fn totals(sample: &str, runs: &[&RunSummary]) -> SampleTotals {
    let all = || runs.iter().copied();
    let count = |of: fn(&RunSummary) -> u64| all().map(of).fold(0, u64::saturating_add);
    let sum = |of: fn(&RunSummary) -> Option<f64>| all().map(of).sum::<Option<f64>>();
    let elapsed_s = sum(|run| run.elapsed_s);
    let per_s = |count: u64| share(count as f64, elapsed_s);
    let (sequences, tokens) = (count(|run| run.sequences), count(|run| run.tokens));
    let jobs: Option<HashSet<&str>> = runs.iter().map(|run| run.job.as_deref()).collect();
    let packed = runs.iter().map(|run| &run.packing);
    let packed = packed.filter_map(|of| Some((of.mean_utilization?, of.batches as f64)));
    let (filled, batches) = packed.fold((0.0, 0.0), |(filled, sum), (mean, batches)| {
        (filled + mean * batches, sum + batches)
    });
    let idle_s = sum(|run| Some(run.idle?.share * run.elapsed_s?));
    SampleTotals {
        sample: sample.to_owned(),
        runs: runs.len() as u64,
        shards: jobs.map(|jobs| jobs.len() as u64),
        unfinished: count(|run| u64::from(!run.is_done())),
        sequences,
        residues: count(|run| run.residues),
        tokens,
        rejected: count(|run| run.rejected),
        elapsed_s,
        sequences_per_s: per_s(sequences),
        tokens_per_s: per_s(tokens),
        gpu_hours: sum(RunSummary::gpu_hours),
        energy_j: sum(|run| run.efficiency.energy_j),
        mean_packing: share(filled, batches),
        idle_share: share(idle_s, elapsed_s),
    }
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn numbers_in_names_are_in_their_order() {
        let mut names = ["s10", "s2b", "s2", "s1"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["s1", "s2", "s2b", "s10"]);
    }
}
