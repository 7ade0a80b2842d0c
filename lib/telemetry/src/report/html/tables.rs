//! The tables of the page.

use plmkit_logs::event::Outcome;
use plmkit_page::{Cell, Table, Tone};

use crate::report::gpus::short_uuid;
use crate::report::text::outcome;
use crate::report::{Comparison, Finding, GpuSummary, RunSummary, Speed, Tier, WorkerSummary};

#[rustfmt::skip]
pub(super) fn findings(findings: &[&Finding]) -> Table {
    Table::of(findings, &[
        ("tier", |finding| Cell::badge(tone(finding.tier), finding.tier.to_string())),
        ("finding", |finding| Cell::text(format!("{}: {}", finding.subject, finding.text))),
        ("in verdict", |finding| Cell::text(if finding.in_verdict { "yes" } else { "no" })),
    ])
}

pub(super) fn tone(tier: Tier) -> Tone {
    match tier {
        Tier::None => Tone::Good,
        Tier::Mild => Tone::Fair,
        Tier::Critical => Tone::Bad,
    }
}

/// Work and throughput.
#[rustfmt::skip]
pub(super) fn work(runs: &[RunSummary]) -> Table {
    Table::of(runs, &[
        ("run", |run| Cell::text(run.run.as_str())),
        ("end", end),
        ("device", |run| Cell::known(run.device.as_ref())),
        ("type", |run| Cell::known(run.dtype.as_ref())),
        ("batches", |run| Cell::count(run.batches)),
        ("sequences", |run| Cell::count(run.sequences)),
        ("tokens", |run| Cell::count(run.tokens)),
        ("time, s", |run| Cell::decimals(run.elapsed_s, 2)),
        ("sequences/s", |run| Cell::decimals(run.throughput.sequences_per_s, 1)),
        ("residues/s", |run| Cell::decimals(run.throughput.residues_per_s, 0)),
        ("tokens/s", |run| Cell::decimals(run.throughput.tokens_per_s, 0)),
    ])
}

/// Speed beside that of a baseline.
#[rustfmt::skip]
pub(super) fn baseline(comparisons: &[Comparison]) -> Table {
    fn cv(speed: &Speed) -> Cell {
        Cell::percent(speed.spread.as_ref().and_then(|spread| spread.cv))
    }
    Table::of(comparisons, &[
        ("model and device", |found| Cell::text(found.of.as_str())),
        ("times as fast", |found| Cell::decimals(Some(found.ratio), 2)),
        ("runs", |found| Cell::count(found.speed.runs as u64)),
        ("tokens/s", |found| Cell::decimals(Some(found.speed.mean), 0)),
        ("variation, %", |found| cv(&found.speed)),
        ("runs before", |found| Cell::count(found.baseline.runs as u64)),
        ("tokens/s before", |found| Cell::decimals(Some(found.baseline.mean), 0)),
        ("variation before, %", |found| cv(&found.baseline)),
    ])
}

fn end(run: &RunSummary) -> Cell {
    let text = outcome(run.outcome);
    match run.outcome {
        Some(Outcome::Done) => Cell::text(text),
        Some(Outcome::Failed) => Cell::badge(Tone::Bad, text),
        Some(Outcome::Stopped) | None => Cell::badge(Tone::Fair, text),
    }
}

/// Workers and their GPUs.
#[rustfmt::skip]
pub(super) fn workers(workers: &[WorkerSummary]) -> Table {
    Table::of(workers, &[
        ("worker", |worker| Cell::count(worker.worker)),
        ("GPU", |worker| Cell::known(worker.gpu_uuid.as_deref().map(short_uuid))),
        ("product", |worker| Cell::known(worker.gpu_name.as_deref().map(product))),
        ("batches", |worker| Cell::count(worker.batches)),
        ("sequences", |worker| Cell::count(worker.sequences)),
        ("tokens, %", |worker| Cell::percent(worker.token_share)),
        ("tokens/s", |worker| Cell::decimals(worker.throughput.tokens_per_s, 0)),
        ("computing, %", |worker| Cell::percent(worker.compute_share)),
        ("waiting, %", |worker| Cell::percent(worker.wait_share)),
        ("idle, %", |worker| Cell::percent(worker.idle.map(|idle| idle.share))),
    ])
}

/// Use of the devices.
#[rustfmt::skip]
pub(super) fn efficiency(runs: &[RunSummary]) -> Table {
    Table::of(runs, &[
        ("run", |run| Cell::text(run.run.as_str())),
        ("GPUs", |run| Cell::count(run.gpus.as_ref().map(|gpus| gpus.len() as u64).filter(|&gpus| gpus > 0))),
        ("MFU, %", |run| Cell::percent(run.efficiency.mfu)),
        ("GPU busy, %", |run| Cell::percent(mean_utilization(run))),
        ("covered, %", |run| Cell::percent(coverage(run))),
        ("power, W", |run| Cell::decimals(run.efficiency.mean_power_w, 0)),
        ("energy, kJ", |run| Cell::decimals(run.efficiency.energy_j.map(|joules| joules / 1000.0), 1)),
        ("residues/J", |run| Cell::decimals(run.efficiency.residues_per_joule, 2)),
        ("computing, %", |run| Cell::percent(run.stages.compute_share())),
        ("idle, %", |run| Cell::percent(run.idle.map(|idle| idle.share))),
        ("waiting, %", |run| Cell::percent(run.idle.map(|idle| idle.waiting))),
        ("packing, %", |run| Cell::percent(run.packing.mean_utilization)),
        ("rejected", |run| Cell::count(run.rejected)),
    ])
}

/// Returns the name of a product without its maker.
fn product(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// Returns the mean utilisation of a run's GPUs; `None` if that of one is unknown.
fn mean_utilization(run: &RunSummary) -> Option<f64> {
    let gpus = run.gpus.as_ref().filter(|gpus| !gpus.is_empty())?;
    let shares = gpus.iter().map(|gpu| gpu.figures.mean_utilization);
    Some(shares.sum::<Option<f64>>()? / gpus.len() as f64)
}

/// Returns the coverage of the GPU of a run that was seen least.
fn coverage(run: &RunSummary) -> Option<f64> {
    let shares = run
        .gpus
        .iter()
        .flatten()
        .filter_map(|gpu| gpu.figures.coverage);
    shares.reduce(f64::min)
}

#[rustfmt::skip]
pub(super) fn gpus(gpus: &[GpuSummary]) -> Table {
    Table::of(gpus, &[
        ("GPU", |gpu| Cell::count(gpu.index.map(u64::from))),
        ("host", |gpu| Cell::known(gpu.host.as_ref())),
        ("UUID", |gpu| Cell::known(gpu.uuid.as_deref().map(short_uuid))),
        ("state", |gpu| if gpu.lost { Cell::badge(Tone::Bad, "lost") } else { Cell::known(None::<String>) }),
        ("product", |gpu| Cell::known(gpu.name.as_deref().map(product))),
        ("covered, %", |gpu| Cell::percent(gpu.figures.coverage)),
        ("busy, %", |gpu| Cell::percent(gpu.figures.mean_utilization)),
        ("tensor, %", |gpu| Cell::decimals(gpu.figures.values.get("tensor_active").and_then(|value| value.mean), 1)),
        ("peak memory, MiB", |gpu| Cell::count(gpu.figures.peak_mem_used_mib)),
        ("memory, MiB", |gpu| Cell::count(gpu.mem_total_mib)),
        ("hottest, °C", |gpu| Cell::count(gpu.figures.max_temperature_c.map(u64::from))),
        ("power, W", |gpu| Cell::decimals(gpu.figures.mean_power_w, 0)),
        ("throttled, %", |gpu| Cell::percent(gpu.figures.throttled_share)),
    ])
}
