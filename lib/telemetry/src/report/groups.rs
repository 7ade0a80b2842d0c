//! Runs together: their sums, and their speeds beside those of a baseline.

use std::collections::BTreeMap;

use plmkit_contract::plural;
use plmkit_logs::event::RunStarted;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batches::BatchSums;
use super::run::{Efficiency, RunSummary};
use super::{Report, share, wall};

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
    let name = plural(runs.len(), "run") + " together";
    let mut all = RunSummary {
        name: name.clone(),
        setup: RunStarted {
            run: name,
            time: runs.iter().filter_map(|run| run.setup.time).min(),
            ..common(runs).unwrap_or_default()
        },
        attempts: count(|run| run.attempts),
        lost_batches: count(|run| run.lost_batches),
        lost_tokens: count(|run| run.lost_tokens),
        outcome: unfinished.or(runs.last()).and_then(|run| run.outcome),
        ended: runs.iter().filter_map(|run| run.ended).max(),
        elapsed_s: wall::at_work(runs, 0.0).map(|(wall_s, _)| wall_s),
        runs_s: sum(&|run| run.elapsed_s),
        cpu_s: sum(&|run| run.cpu_s),
        is_on_cpu: runs.iter().all(|run| run.is_on_cpu),
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

/// Returns what the first events of all runs share; totals are those of one run each.
fn common(runs: &[RunSummary]) -> Option<RunStarted> {
    let setups = runs.iter().map(|run| serde_json::to_value(&run.setup).ok());
    let setups: Vec<Value> = setups.collect::<Option<_>>()?;
    let mut shared = setups.first()?.as_object()?.clone();
    shared.retain(|name, value| {
        let is_of_one = name.ends_with("_total") || name.ends_with("_saved");
        !is_of_one && setups.iter().all(|setup| setup.get(name) == Some(value))
    });
    shared.insert("run".to_owned(), "".into());
    serde_json::from_value(shared.into()).ok()
}

/// The speed of several runs, in tokens a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Runs.
    pub runs: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample: the sum of squares is divided by one less than the number of runs. `None` for one run.
    pub stddev: Option<f64>,
    /// The coefficient of variation: the standard deviation over the mean.
    pub cv: Option<f64>,
}

impl Spread {
    fn new(values: &[f64]) -> Self {
        let runs = values.len();
        let mean = values.iter().sum::<f64>() / runs as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = share(squares, runs as f64 - 1.0).map(f64::sqrt);
        Self {
            runs,
            mean,
            stddev,
            cv: share(stddev, mean),
        }
    }
}

/// The speed of runs of one model on one kind of device, and that of a baseline, if it has such runs. Only runs that are done
/// count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Model, device and number type.
    pub of: String,
    /// The speed of the runs.
    pub tokens_per_s: Spread,
    /// The speed of the runs of the baseline.
    pub baseline: Option<Spread>,
    /// The mean speed over that of the baseline.
    pub ratio: Option<f64>,
}

/// Returns the speeds of all kinds of runs.
pub(super) fn speeds(runs: &[RunSummary]) -> Vec<Speed> {
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.is_done()) {
        let setup = &run.setup;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
        let device = match setup.gpu_names.as_deref() {
            Some([first, others @ ..]) => format!("{} x {first}", others.len() + 1),
            _ => known(&setup.device),
        };
        let model = setup.model.clone();
        let model = model.unwrap_or_else(|| known(&setup.model_digest));
        let of = format!("{model} on {device} in {}", known(&setup.dtype));
        let rate = run.throughput.tokens_per_s.filter(|&rate| rate > 0.0);
        rates.entry(of).or_default().extend(rate);
    }
    let known = rates.into_iter().filter(|(_, rates)| !rates.is_empty());
    let speeds = known.map(|(of, rates)| Speed {
        of,
        tokens_per_s: Spread::new(&rates),
        baseline: None,
        ratio: None,
    });
    speeds.collect()
}

/// What is read of the report that another one is compared with.
#[derive(Debug, Deserialize)]
pub struct Baseline {
    speeds: Vec<Speed>,
}

impl Report {
    /// Compares the speed with that of a baseline. The error says what the baseline lacks.
    pub fn compare(&mut self, baseline: Baseline) -> Result<(), String> {
        let names: Vec<&str> = baseline.speeds.iter().map(|speed| &*speed.of).collect();
        let names = match &names[..] {
            [] => "none".to_owned(),
            names => names.join("; "),
        };
        for before in baseline.speeds {
            let mut now = self.speeds.iter_mut();
            if let Some(now) = now.find(|now| now.of == before.of) {
                now.ratio = share(now.tokens_per_s.mean, before.tokens_per_s.mean);
                now.baseline = Some(before.tokens_per_s);
            }
        }
        if self.speeds.iter().all(|speed| speed.ratio.is_none()) {
            return Err(format!(
                "expected runs of a model and device of this report, found {names}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::Outcome;

    use super::*;
    use crate::tests::{batch, done, report, started};

    /// A report on runs with these tokens a second.
    fn report_of(rates: &[f64], outcome: Outcome) -> Report {
        let runs = rates.iter().zip(0..).flat_map(|(&rate, number)| {
            let name = format!("r{number}");
            let started = started(|run| {
                name.clone_into(&mut run.run);
                (run.model, run.device) = (Some("m".to_owned()), Some("cpu".to_owned()));
                run.dtype = Some("f32".to_owned());
            });
            let batch = batch(0, |batch| {
                (batch.run, batch.tokens) = (name.clone(), rate as u64);
            });
            let done = done(|done| {
                (done.run, done.elapsed_s, done.outcome) = (name.clone(), 1.0, outcome);
            });
            [started, batch, done]
        });
        report(crate::tests::runs(runs), [])
    }

    fn compared(report: &mut Report, baseline: &Report) -> Result<(), String> {
        let json = serde_json::to_string(baseline).unwrap();
        report.compare(serde_json::from_str(&json).unwrap())
    }

    #[test]
    fn a_ratio_is_that_of_the_means_and_both_spreads_are_told() {
        let mut report = report_of(&[30.0, 50.0], Outcome::Done);
        compared(&mut report, &report_of(&[20.0], Outcome::Done)).unwrap();
        let [found] = &report.speeds[..] else {
            panic!("one kind of device")
        };
        let spread = |spread: &Spread| (spread.runs, spread.mean, spread.stddev, spread.cv);
        assert_eq!((&*found.of, found.ratio), ("m on cpu in f32", Some(2.0)));
        let stddev = 200_f64.sqrt();
        assert_eq!(
            spread(&found.tokens_per_s),
            (2, 40.0, Some(stddev), Some(stddev / 40.0))
        );
        let before = found.baseline.as_ref().unwrap();
        assert_eq!(spread(before), (1, 20.0, None, None));
    }

    #[test]
    fn a_baseline_without_runs_of_the_kind_is_refused() {
        let own = report_of(&[30.0], Outcome::Done);
        let refused = |baseline: &Report| compared(&mut own.clone(), baseline).is_err();
        assert!(refused(&report_of(&[20.0], Outcome::Stopped)));
        assert!(refused(&report_of(&[], Outcome::Done)) && !refused(&own));
        let none = compared(&mut own.clone(), &report_of(&[], Outcome::Done));
        assert!(none.unwrap_err().ends_with("of this report, found none"));
    }
}
