//! Runs together.

use plmkit_kit::plural;
use plmkit_logs::event::RunStarted;
use serde_json::Value;

use super::run::{Efficiency, RunSummary};
use super::wall;

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
    let totals = runs.iter().map(|run| run.total.clone());
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
        lost_tokens: runs.iter().map(|run| run.lost_tokens).sum(),
        outcome: unfinished.or(runs.last()).and_then(|run| run.outcome),
        ended: runs.iter().filter_map(|run| run.ended).max(),
        elapsed_s: wall::at_work(runs, 0.0).map(|(wall_s, _)| wall_s),
        runs_s: sum(&|run| run.elapsed_s),
        cpu_s: sum(&|run| run.cpu_s),
        is_on_cpu: runs.iter().all(|run| run.is_on_cpu),
        load_s: sum(&|run| run.load_s),
        device_s: sum(&|run| run.device_s),
        gpu_hours: sum(&|run| run.gpu_hours),
        total: totals.reduce(|sum, total| sum + total).unwrap_or_default(),
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
