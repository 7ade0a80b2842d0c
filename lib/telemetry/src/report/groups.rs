//! Runs together: those of a sample, repeats of one job, and those of a baseline.

use std::collections::{BTreeMap, HashMap, HashSet};

use plmkit_logs::Mean;
use plmkit_logs::event::Outcome;
use serde::Serialize;
use serde_json::Value;

use super::run::{RunSummary, Throughput};
use super::{counted, share};

/// The figures of a run in tables, or of the runs of a sample together: one for each of its shards, and more where work was
/// repeated. A figure that one of them lacks is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// The name of the sample, or of the run.
    #[serde(skip)]
    pub name: String,
    /// The sample of all runs.
    pub sample: Option<String>,
    /// Runs.
    pub runs: u64,
    /// Different jobs among them: shards, unless one was computed with several options.
    pub shards: Option<u64>,
    /// Runs that did not end as `done`.
    pub unfinished: u64,
    /// How the first of these ended, or else the last run; `None` if it was killed or is still running.
    pub outcome: Option<Outcome>,
    /// The machine, device, number type and products of the GPUs that all runs have.
    pub host: Option<String>,
    /// The device.
    pub device: Option<String>,
    /// The number type.
    pub dtype: Option<String>,
    /// The GPUs: `2 x NVIDIA L4`.
    pub gpus: Option<String>,
    /// Batches computed.
    pub batches: u64,
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
    /// Work for each second of a run.
    #[serde(flatten)]
    pub throughput: Throughput,
    /// Hours of GPUs, with loading the model; 0 on CPUs. `None` if the GPUs or the time of a run are unknown.
    pub gpu_hours: Option<f64>,
    /// Energy of the GPUs, in joules; `None` if that of a run is unknown.
    pub energy_j: Option<f64>,
    /// Model FLOPs utilisation, weighted by time.
    pub mfu: Option<f64>,
    /// Mean power of all GPUs of a run together in watts, weighted by time.
    pub mean_power_w: Option<f64>,
    /// Mean utilisation of the GPUs whose utilisation is known.
    pub mean_utilization: Option<f64>,
    /// Coverage of the GPU that was seen least.
    pub coverage: Option<f64>,
    /// Mean utilisation of the CPUs of the machines that are known.
    pub mean_cpu_utilization: Option<f64>,
    /// Mean fill over the batches of all runs, last batches of files left out.
    pub mean_fill: Option<f64>,
    /// Time without work over the time of all runs.
    pub idle_share: Option<f64>,
    /// Of this, waiting for batches.
    pub waiting_share: Option<f64>,
    /// Time in which the device computed over the time of all runs.
    pub compute_share: Option<f64>,
}

impl Totals {
    /// Sums up one run or more.
    pub(super) fn new(runs: &[&RunSummary]) -> Self {
        let count = |of: fn(&RunSummary) -> u64| {
            let counts = runs.iter().map(|run| of(run));
            counts.fold(0, u64::saturating_add)
        };
        let sum = |of: &dyn Fn(&RunSummary) -> Option<f64>| -> Option<f64> {
            let known: Option<Vec<f64>> = runs.iter().map(|run| of(run)).collect();
            known?.into_iter().reduce(|sum, value| sum + value)
        };
        let elapsed_s = sum(&|run| run.elapsed_s);
        let weighted = |of: fn(&RunSummary) -> Option<f64>| match runs {
            [run] => of(run),
            _ => share(sum(&|run| Some(of(run)? * run.elapsed_s?)), elapsed_s),
        };
        let common = |of: fn(&RunSummary) -> Option<String>| {
            let first = runs.first().and_then(|run| of(run));
            first.filter(|first| runs.iter().all(|run| of(run).as_ref() == Some(first)))
        };
        let jobs: Option<HashSet<&str>> = runs.iter().map(|run| run.job.as_deref()).collect();
        let gpus = || runs.iter().flat_map(|run| run.gpus.iter().flatten());
        let mut utilization = Mean::default();
        utilization.extend(gpus().filter_map(|gpu| gpu.figures.mean_utilization));
        let machines = runs.iter().filter_map(|run| run.machine.as_ref());
        let mut cpu = Mean::default();
        cpu.extend(machines.filter_map(|machine| machine.mean_cpu_utilization));
        let packed = runs.iter().map(|run| &run.packing);
        let packed = packed.filter_map(|of| Some((of.mean_fill?, of.batches as f64)));
        let (filled, batches) = packed.fold((0.0, 0.0), |(filled, sum), (mean, batches)| {
            (filled + mean * batches, sum + batches)
        });
        let amounts = [
            count(|run| run.sequences),
            count(|run| run.residues),
            count(|run| run.tokens),
        ];
        let unfinished = runs.iter().find(|run| !run.is_done());
        Self {
            name: runs.last().map_or_else(String::new, |run| run.run.clone()),
            sample: common(|run| run.sample.clone()),
            runs: runs.len() as u64,
            shards: jobs.map(|jobs| jobs.len() as u64),
            unfinished: count(|run| u64::from(!run.is_done())),
            outcome: unfinished.or(runs.last()).and_then(|run| run.outcome),
            host: common(|run| run.host.clone()),
            device: common(|run| run.device.clone()),
            dtype: common(|run| run.dtype.clone()),
            gpus: common(products),
            batches: count(|run| run.batches),
            sequences: amounts[0],
            residues: amounts[1],
            tokens: amounts[2],
            rejected: count(|run| run.rejected),
            throughput: Throughput::new(amounts, elapsed_s),
            elapsed_s,
            gpu_hours: sum(&RunSummary::gpu_hours),
            energy_j: sum(&|run| run.efficiency.energy_j),
            mfu: weighted(|run| run.efficiency.mfu),
            mean_power_w: weighted(|run| run.efficiency.mean_power_w),
            mean_utilization: utilization.mean(),
            coverage: gpus()
                .filter_map(|gpu| gpu.figures.coverage)
                .reduce(f64::min),
            mean_cpu_utilization: cpu.mean(),
            mean_fill: share(filled, batches),
            idle_share: weighted(|run| Some(run.idle?.share)),
            waiting_share: weighted(|run| Some(run.idle?.waiting)),
            compute_share: weighted(|run| run.stages.get("compute")?.as_ref()?.share),
        }
    }
}

/// Returns the products of a run's GPUs, with their numbers if there are several: `2 x NVIDIA L4`.
fn products(run: &RunSummary) -> Option<String> {
    let names = run.gpus.iter().flatten().map(|gpu| gpu.name.as_deref());
    let mut names = names.collect::<Option<Vec<_>>>()?;
    names.sort_unstable();
    let products = counted(&names, "x");
    (!products.is_empty()).then(|| products.join(", "))
}

/// Returns the totals of each sample that runs name, in the order of their names, 2 before 10.
pub(super) fn by_sample(runs: &[RunSummary]) -> Vec<Totals> {
    let mut samples: BTreeMap<(String, &str), Vec<&RunSummary>> = BTreeMap::new();
    for run in runs {
        if let Some(sample) = &run.sample {
            let runs = samples.entry((natural(sample), sample)).or_default();
            runs.push(run);
        }
    }
    let totals = samples.into_iter().map(|((_, sample), runs)| Totals {
        name: sample.to_owned(),
        ..Totals::new(&runs)
    });
    totals.collect()
}

/// Returns a name with its numbers padded, so that 2 comes before 10.
fn natural(name: &str) -> String {
    let ended = format!("{name}\0");
    let pieces = ended.split_inclusive(|letter: char| !letter.is_ascii_digit());
    let padded: Vec<String> = pieces.map(|piece| format!("{piece:0>20}")).collect();
    padded.concat()
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
    let groups = groups.iter().map(|group| {
        let spread = |of: fn(&RunSummary) -> Option<f64>| {
            let values: Vec<f64> = group.iter().map(|run| of(run)).collect::<Option<_>>()?;
            Spread::new(&values)
        };
        Repeats {
            job: group[0].job.clone().unwrap_or_default(),
            sample: group[0].sample.clone(),
            runs: group.iter().map(|run| run.run.clone()).collect(),
            elapsed_s: spread(|run| run.elapsed_s),
            load_s: spread(|run| run.load_s),
            sequences_per_s: spread(|run| run.throughput.sequences_per_s),
            tokens_per_s: spread(|run| run.throughput.tokens_per_s),
            idle_share: spread(|run| Some(run.idle?.share)),
            energy_j: spread(|run| run.efficiency.energy_j),
        }
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

    #[test]
    fn numbers_in_names_are_in_their_order() {
        let mut names = ["s10", "s2b", "s2", "s1"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["s1", "s2", "s2b", "s10"]);
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
