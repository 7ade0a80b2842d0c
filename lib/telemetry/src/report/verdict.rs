//! The verdict in words.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plmkit_contract::plural;

use super::findings::{OF_GPU, OF_RUN, Rule};
use super::{FindingKind, GpuSummary, Report, RunSummary, Tier, percent};

/// Returns how many runs and GPUs are how bad, and what the worst of each kind is: `3 runs: 1 critical (idle 48.0 %), 2 ok`.
pub(super) fn in_words(report: &Report) -> String {
    let gpus = report.gpus().iter().filter(|gpu| gpu.in_run);
    let parts = [
        judged("run", report.runs().iter(), &OF_RUN, of_run),
        judged("GPU", gpus, &OF_GPU, of_gpu),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join("; ")
}

fn of_run(run: &RunSummary, kind: FindingKind) -> Option<f64> {
    match kind {
        FindingKind::Packing => run.packing.mean_utilization,
        FindingKind::Idle => Some(run.idle?.share),
        _ => None,
    }
}

fn of_gpu(gpu: &GpuSummary, kind: FindingKind) -> Option<f64> {
    match kind {
        FindingKind::Bottleneck => gpu.figures.mean_utilization,
        _ => None,
    }
}

/// Kinds of findings, each once, with what is said of them.
type Kinds = Vec<(FindingKind, String)>;

/// Counts the items by their worst tier. A kind is told with the `figure` of the first item that has it.
fn judged<'a, T: 'a>(
    what: &str,
    items: impl Iterator<Item = &'a T>,
    rules: &[Rule<T>],
    figure: fn(&T, FindingKind) -> Option<f64>,
) -> Option<String> {
    let mut tiers: BTreeMap<Reverse<Tier>, (u64, Kinds)> = BTreeMap::new();
    for item in items {
        let found = rules.iter().filter(|(kind, ..)| kind.counts());
        let found = found.filter_map(|(kind, rule, _)| Some((rule(item)?.0, *kind)));
        let found: Vec<(Tier, FindingKind)> = found.collect();
        let Some(worst) = found.iter().map(|(tier, _)| *tier).max() else {
            continue;
        };
        let (count, kinds) = tiers.entry(Reverse(worst)).or_default();
        *count += 1;
        for (_, kind) in found.into_iter().filter(|(tier, _)| *tier == worst) {
            if kinds.iter().all(|(known, _)| *known != kind) {
                let name = match kind {
                    FindingKind::Bottleneck => "busy",
                    kind => kind.into(),
                };
                let figure = figure(item, kind).map(|share| format!(" {}", percent(share)));
                kinds.push((kind, name.replace('_', " ") + &figure.unwrap_or_default()));
            }
        }
    }
    let all: u64 = tiers.values().map(|(count, _)| count).sum();
    let parts = tiers.iter().map(|(Reverse(tier), (count, kinds))| {
        let kinds: Vec<&str> = kinds.iter().map(|(_, name)| name.as_str()).collect();
        match tier {
            Tier::None => format!("{count} {tier}"),
            _ => format!("{count} {tier} ({})", kinds.join(", ")),
        }
    });
    let parts: Vec<String> = parts.collect();
    (all > 0).then(|| format!("{}: {}", plural(all, what), parts.join(", ")))
}
