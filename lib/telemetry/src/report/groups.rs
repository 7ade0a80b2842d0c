//! Runs together: their sums, repeats of one job, and those of a baseline.

use std::collections::BTreeMap;

use plmkit_contract::plural;
use plmkit_logs::Mean;
use plmkit_logs::event::RunStarted;
use serde::Serialize;
use serde_json::Value;

use super::batches::BatchSums;
use super::run::{Efficiency, RunSummary};
use super::share;

/// Returns runs together: those of a sample, one for each of its shards, and more where work was repeated. A figure that one of
/// them lacks is unknown.
pub(super) fn sum(runs: &[RunSummary]) -> RunSummary {
    let count = |of: fn(&RunSummary) -> u64| {
        let counts = runs.iter().map(of);
        counts.fold(0, u64::saturating_add)
    };
    let sum = |of: &dyn Fn(&RunSummary) -> Option<f64>| -> Option<f64> {
        let known: Option<Vec<f64>> = runs.iter().map(of).collect();
        known?.into_iter().reduce(|sum, value| sum + value)
    };
    let unfinished = runs.iter().find(|run| !run.is_done());
    let mut all = RunSummary {
        setup: RunStarted {
            run: plural(runs.len() as u64, "run"),
            sample: common(runs, |setup| &setup.sample),
            model: common(runs, |setup| &setup.model),
            host: common(runs, |setup| &setup.host),
            device: common(runs, |setup| &setup.device),
            dtype: common(runs, |setup| &setup.dtype),
            token_budget: common(runs, |setup| &setup.token_budget),
            kernel_set: common(runs, |setup| &setup.kernel_set),
            driver_version: common(runs, |setup| &setup.driver_version),
            cuda_version: common(runs, |setup| &setup.cuda_version),
            time: runs.iter().filter_map(|run| run.setup.time).min(),
            ..RunStarted::default()
        },
        attempts: count(|run| run.attempts),
        lost_batches: count(|run| run.lost_batches),
        lost_tokens: count(|run| run.lost_tokens),
        outcome: unfinished.or(runs.last()).and_then(|run| run.outcome),
        ended: runs.iter().filter_map(|run| run.ended).max(),
        elapsed_s: sum(&|run| run.elapsed_s),
        workers_s: sum(&|run| run.workers_s),
        load_s: sum(&|run| run.load_s),
        device_s: sum(&|run| run.device_s),
        gpu_hours: sum(&|run| run.gpu_hours),
        batches: count(|run| run.batches),
        sequences: count(|run| run.sequences),
        residues: count(|run| run.residues),
        tokens: count(|run| run.tokens),
        oom_splits: count(|run| run.oom_splits),
        recomputed: count(|run| run.recomputed),
        rejected: count(|run| run.rejected),
        longest: runs.iter().filter_map(|run| run.longest).max(),
        gpus: runs
            .iter()
            .map(|run| run.gpus.clone())
            .collect::<Option<Vec<_>>>()
            .map(|gpus| gpus.concat()),
        efficiency: Efficiency {
            flops: sum(&|run| run.efficiency.flops),
            possible_flops: sum(&|run| run.efficiency.possible_flops),
            energy_j: sum(&|run| run.efficiency.energy_j),
            ..Efficiency::default()
        },
        ..RunSummary::default()
    };
    let sums: Vec<&BatchSums> = runs.iter().map(|run| &run.sums).collect();
    all.sums = BatchSums::sum(&sums);
    all.derive();
    all
}

/// Returns what all runs share.
fn common<T: Clone + PartialEq>(
    runs: &[RunSummary],
    of: fn(&RunStarted) -> &Option<T>,
) -> Option<T> {
    let first = of(&runs.first()?.setup).clone();
    first.filter(|first| {
        let mut all = runs.iter();
        all.all(|run| of(&run.setup).as_ref() == Some(first))
    })
}

/// A figure over several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Runs.
    pub runs: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample: the sum of squares is divided by one less than the number of runs. `None` for one run.
    pub stddev: Option<f64>,
    /// The coefficient of variation: the standard deviation over the mean.
    pub cv: Option<f64>,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

impl Spread {
    /// Returns `None` without values.
    fn new(values: &[f64]) -> Option<Self> {
        let mut all = Mean::default();
        all.extend(values.iter().copied());
        let mean = all.mean()?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = share(squares, (values.len() - 1) as f64).map(f64::sqrt);
        Some(Self {
            runs: values.len(),
            mean,
            stddev,
            cv: share(stddev, mean),
            min: all.min()?,
            max: all.max()?,
        })
    }
}

/// Runs of the same job on the same kind of machine. A job is a digest of the inputs and of the options that decide the
/// content of the output. Device, GPU names, number type, workers, threads and the program's version are the same, too. Only
/// runs that one process did from the beginning to the end are compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeats {
    /// The job.
    pub job: String,
    /// The sample.
    pub sample: Option<String>,
    /// The names of the runs, two or more.
    pub runs: Vec<String>,
    /// Tokens a second.
    pub tokens_per_s: Spread,
}

/// Returns the groups of two runs and more.
pub(super) fn repeats(runs: &[RunSummary]) -> Vec<Repeats> {
    let mut groups: BTreeMap<_, Vec<&RunSummary>> = BTreeMap::new();
    for run in runs {
        let of = &run.setup;
        let device = (&of.device, &of.gpu_names, of.workers, of.threads);
        if run.is_done() && run.attempts == 1 && of.batches_saved.is_none() {
            let group = groups.entry((&of.job, &of.version, &of.dtype, device));
            group.or_default().push(run);
        }
    }
    let groups = groups.into_values().filter(|group| group.len() > 1);
    let groups = groups.filter_map(|group| {
        let rates = group.iter().map(|run| run.throughput.tokens_per_s);
        Some(Repeats {
            job: group[0].setup.job.clone()?,
            sample: group[0].setup.sample.clone(),
            runs: group.iter().map(|run| run.setup.run.clone()).collect(),
            tokens_per_s: Spread::new(&rates.collect::<Option<Vec<f64>>>()?)?,
        })
    });
    groups.collect()
}

/// Tokens a second of runs of one model on one kind of device, of this report and of its baseline. Only runs that are done
/// count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Model, device and number type.
    pub of: String,
    /// The speed of the runs of this report.
    pub speed: Spread,
    /// The speed of those of the baseline.
    pub baseline: Spread,
    /// The mean speed over that of the baseline.
    pub ratio: f64,
}

/// Compares a report with its baseline, both as JSON. The error says what the baseline lacks.
pub fn compare(report: &Value, baseline: &Value) -> Result<Vec<Comparison>, String> {
    let before = speeds(baseline).ok_or("expected a report of monitor-log with run events")?;
    let now = speeds(report).unwrap_or_default();
    let both = now.iter().filter_map(|(of, rates)| {
        let (speed, baseline) = (Spread::new(rates)?, Spread::new(before.get(of)?)?);
        Some(Comparison {
            of: of.clone(),
            ratio: share(speed.mean, baseline.mean)?,
            speed,
            baseline,
        })
    });
    let both: Vec<Comparison> = both.collect();
    if both.is_empty() {
        let names = before.into_keys().collect::<Vec<_>>().join("; ");
        return Err(format!(
            "expected runs of a model and device of this report, found {names}"
        ));
    }
    Ok(both)
}

/// Returns the tokens a second of the runs that are done, by model, device and number type.
fn speeds(report: &Value) -> Option<BTreeMap<String, Vec<f64>>> {
    let mut speeds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in report["events"]["runs"].as_array()? {
        let text = |key: &str| run[key].as_str().unwrap_or("?");
        let rate = run["throughput"]["tokens_per_s"].as_f64();
        let (Some(rate), "done") = (rate.filter(|&rate| rate > 0.0), text("outcome")) else {
            continue;
        };
        let gpus = run["gpu_names"].as_array();
        let device = match gpus.map_or(&[][..], Vec::as_slice) {
            [] => text("device").to_owned(),
            names => format!("{} x {}", names.len(), names[0].as_str().unwrap_or("?")),
        };
        let model = run["model"]
            .as_str()
            .unwrap_or_else(|| text("model_digest"));
        let of = format!("{model} on {device} in {}", text("dtype"));
        speeds.entry(of).or_default().push(rate);
    }
    Some(speeds)
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::Event;
    use serde_json::json;

    use super::*;
    use crate::tests::{batch, done, started, summaries};

    /// A run of ten batches: the time of each, its parts, and how full it is.
    fn run(name: &str, step_s: f64, compute_ms: Option<f64>, filled: f64) -> Vec<Event> {
        let mut events = vec![started(|run| name.clone_into(&mut run.run))];
        events.extend((0..10).map(|number| {
            batch(number, |batch| {
                name.clone_into(&mut batch.run);
                batch.elapsed_s = Some(step_s * (number + 1) as f64);
                (batch.compute_ms, batch.wait_ms) = (compute_ms, Some(30.0));
                (batch.tokens, batch.utilization) = (100, Some(filled));
                batch.oom_splits = 1;
            })
        }));
        events.push(done(|done| {
            name.clone_into(&mut done.run);
            (done.tokens, done.elapsed_s) = (1000, 10.0 * step_s);
        }));
        events
    }

    #[test]
    fn runs_together_have_the_sums_of_their_batches() {
        let both = [
            run("a", 1.0, Some(900.0), 0.9),
            run("b", 2.0, Some(1000.0), 0.8),
        ];
        let all = sum(&summaries(both.concat()));
        assert_eq!((all.elapsed_s, all.tokens), (Some(30.0), 2000));
        assert_eq!((all.oom_splits, all.packing.below_85), (20, 10));
        let [compute, wait] = ["compute", "wait"].map(|stage| all.stages[stage].clone().unwrap());
        // 9 s and 10 s of 30 s; 0.6 s of waits.
        assert_eq!((compute.total_ms, wait.total_ms), (19_000.0, 600.0));
        assert_eq!(wait.share, Some(0.02));
        assert!((all.idle_share.unwrap() - 11.0 / 30.0).abs() < 1e-12);
        assert!((all.packing.mean_fill.unwrap() - 0.85).abs() < 1e-12);
        assert_eq!(all.packing.min_fill, Some(0.8));
        // What one of them does not know is unknown.
        let other = [run("a", 1.0, Some(900.0), 0.9), run("b", 2.0, None, 0.8)];
        let all = sum(&summaries(other.concat()));
        assert_eq!((&all.stages["compute"], all.idle_share), (&None, None));
        assert_eq!(all.stage_share("wait"), Some(0.02));
    }

    fn report(rates: &[f64], outcome: &str) -> Value {
        let runs = rates.iter().map(|rate| {
            json!({
                "model": "m", "device": "cpu", "dtype": "f32", "outcome": outcome,
                "throughput": { "tokens_per_s": rate },
            })
        });
        json!({ "events": { "runs": runs.collect::<Vec<_>>() } })
    }

    #[test]
    fn a_ratio_is_that_of_the_means_and_both_spreads_are_told() {
        let found = compare(&report(&[30.0, 50.0], "done"), &report(&[20.0], "done")).unwrap();
        let [found] = &found[..] else {
            panic!("one kind of device")
        };
        let spread = |spread: &Spread| (spread.runs, spread.mean, spread.stddev, spread.cv);
        assert_eq!((&*found.of, found.ratio), ("m on cpu in f32", 2.0));
        let stddev = 200_f64.sqrt();
        assert_eq!(
            spread(&found.speed),
            (2, 40.0, Some(stddev), Some(stddev / 40.0))
        );
        assert_eq!(spread(&found.baseline), (1, 20.0, None, None));
    }

    #[test]
    fn a_baseline_without_runs_of_the_kind_is_refused() {
        let own = report(&[30.0], "done");
        let refused = |baseline: &Value| compare(&own, baseline).is_err();
        assert!(refused(&json!({})) && refused(&report(&[20.0], "stopped")));
        assert!(refused(&report(&[], "done")) && !refused(&own));
    }
}
