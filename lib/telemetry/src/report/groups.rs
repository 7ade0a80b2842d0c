//! Runs together: their sums, repeats of one job, and those of a baseline.

use std::collections::BTreeMap;

use plmkit_contract::plural;
use plmkit_logs::Mean;
use plmkit_logs::event::RunStarted;
use serde::Serialize;
use serde_json::Value;

use super::batches::{Packing, Stage};
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
    let elapsed_s = sum(&|run| run.elapsed_s);
    let weighted = |of: &dyn Fn(&RunSummary) -> Option<f64>| {
        share(sum(&|run| Some(of(run)? * run.elapsed_s?)), elapsed_s)
    };
    let unfinished = runs.iter().find(|run| !run.is_done());
    let filled =
        |run: &RunSummary| run.packing.mean_fill.unwrap_or(0.0) * run.packing.batches as f64;
    let packed = count(|run| run.packing.batches);
    let stage = |name: &'static str| {
        let share = weighted(&|run| run.stage_share(name));
        let stage = Stage {
            share,
            ..Stage::default()
        };
        (name, share.map(|_| stage))
    };
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
        outcome: unfinished.or(runs.last()).and_then(|run| run.outcome),
        ended: runs.iter().filter_map(|run| run.ended).max(),
        elapsed_s,
        load_s: sum(&|run| run.load_s),
        device_s: sum(&|run| run.device_s),
        gpu_hours: sum(&|run| run.gpu_hours),
        batches: count(|run| run.batches),
        sequences: count(|run| run.sequences),
        residues: count(|run| run.residues),
        tokens: count(|run| run.tokens),
        rejected: count(|run| run.rejected),
        gpus: runs
            .iter()
            .map(|run| run.gpus.clone())
            .collect::<Option<Vec<_>>>()
            .map(|gpus| gpus.concat()),
        idle_share: weighted(&|run| run.idle_share),
        efficiency: Efficiency {
            flops: sum(&|run| run.efficiency.flops),
            possible_flops: sum(&|run| run.efficiency.possible_flops),
            energy_j: sum(&|run| run.efficiency.energy_j),
            ..Efficiency::default()
        },
        stages: ["wait", "compute"].map(stage).into(),
        packing: Packing {
            batches: packed,
            mean_fill: share(runs.iter().map(filled).sum::<f64>(), packed as f64),
            below_85: count(|run| run.packing.below_85),
            ..Packing::default()
        },
        ..RunSummary::default()
    };
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
    use serde_json::json;

    use super::*;

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
