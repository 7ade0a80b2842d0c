//! The tables of a report, which text, page and `MultiQC` share.

use plmkit_logs::event::Outcome;
use plmkit_page::{Cell, Column, Tone};

use super::gpu::short_uuid;
use super::{
    Comparison, Finding, GpuSummary, HostSummary, Repeats, Spread, Tier, Totals, WorkerSummary,
};

/// Amounts that are neither good nor bad, and scales of the others.
const AMOUNT: &str = "Blues";
const RATE: &str = "Greens";
const MORE_IS_BETTER: &str = "RdYlGn";
const LESS_IS_BETTER: &str = "RdYlGn-rev";
/// For numbers that should be 0.
const LOSS: &str = "Reds";

const fn of(name: &'static str, unit: &'static str, cell: fn(&Totals) -> Cell) -> Column<Totals> {
    Column::new(name, unit, cell)
}

/// A run or the runs of a sample: first what people look at first.
#[rustfmt::skip]
pub(super) const RUNS: [Column<Totals>; 26] = [
    of("end", "", |run| end(run.outcome)).multiqc("outcome", "How the run ended", "", true),
    of("runs", "", |run| Cell::count(Some(run.runs).filter(|&runs| runs > 1))),
    of("shards", "", |run| Cell::count(run.shards.filter(|_| run.runs > 1))),
    of("sequences", "", |run| Cell::count(run.sequences)).multiqc("sequences", "Sequences embedded", AMOUNT, true),
    of("tokens/s", "", |run| Cell::decimals(run.throughput.tokens_per_s, 0)).multiqc("tokens_per_s", "Tokens a second over the run", RATE, true),
    of("idle", "%", |run| Cell::percent(run.idle_share)).multiqc("idle_percent", "Share of the run in which the device had no work: waits, gaps between batches, the start; the target is 5 %", LESS_IS_BETTER, true),
    of("fill", "%", |run| Cell::percent(run.mean_fill)).multiqc("fill_percent", "Mean share of a batch's token budget that was used, last batches left out", MORE_IS_BETTER, true),
    of("MFU", "%", |run| Cell::percent(run.mfu)).multiqc("mfu_percent", "Model FLOPs utilization: operations on real tokens over the peak of the devices", MORE_IS_BETTER, true),
    of("GPU busy", "%", |run| Cell::percent(run.mean_utilization)).multiqc("gpu_percent", "Mean utilization over the GPUs of the run", MORE_IS_BETTER, true),
    of("rejected", "", |run| Cell::count(run.rejected)).multiqc("rejected", "Sequences that could not be embedded", LOSS, true),
    of("energy", "mJ/residue", |run| Cell::decimals(mj_per_residue(run), 3)).multiqc("mj_per_residue", "Energy that the GPUs used for each residue", LESS_IS_BETTER, true),
    of("device", "", |run| Cell::known(run.device.as_ref())),
    of("type", "", |run| Cell::known(run.dtype.as_ref())),
    of("batches", "", |run| Cell::count(run.batches)),
    of("tokens", "", |run| Cell::count(run.tokens)),
    of("time", "s", |run| Cell::decimals(run.elapsed_s, 2)),
    of("waiting", "%", |run| Cell::percent(run.waiting_share)).multiqc("waiting_percent", "Share of the run in which the device waited for batches", LESS_IS_BETTER, false),
    of("computing", "%", |run| Cell::percent(run.compute_share)).multiqc("compute_percent", "Share of the run in which the device computed", MORE_IS_BETTER, false),
    of("sequences/s", "", |run| Cell::decimals(run.throughput.sequences_per_s, 1)).multiqc("sequences_per_s", "Sequences a second over the run", RATE, false),
    of("residues/s", "", |run| Cell::decimals(run.throughput.residues_per_s, 0)).multiqc("residues_per_s", "Residues a second over the run", RATE, false),
    of("covered", "%", |run| Cell::percent(run.coverage)),
    of("power", "W", |run| Cell::decimals(run.mean_power_w, 0)),
    of("energy", "kJ", |run| Cell::decimals(run.energy_j.map(|joules| joules / 1000.0), 1)),
    of("CPU", "%", |run| Cell::percent(run.mean_cpu_utilization)).multiqc("cpu_percent", "Mean utilization of the host's CPUs", AMOUNT, false),
    of("host", "", |run| Cell::known(run.host.as_ref())).multiqc("host", "The machine of the run", "", false),
    of("GPUs", "", |run| Cell::known(run.gpus.as_ref())).multiqc("gpu", "The GPUs of the run", "", false),
];

/// The columns of the first of two tables of runs.
pub(super) const OF_WORK: usize = 11;

/// The name of a row, for a page: text and `MultiQC` have it elsewhere.
pub(super) const NAME: Column<Totals> = of("name", "", |run| Cell::text(run.name.as_str()));

/// Returns how a run ended.
pub(super) fn end(outcome: Option<Outcome>) -> Cell {
    let text: &str = outcome.map_or("no end", Into::into);
    match outcome {
        Some(Outcome::Done) => Cell::text(text),
        Some(Outcome::Failed) => Cell::badge(Tone::Bad, text),
        Some(Outcome::Stopped) | None => Cell::badge(Tone::Fair, text),
    }
}

fn mj_per_residue(run: &Totals) -> Option<f64> {
    let joules = run.energy_j.filter(|&joules| joules > 0.0)?;
    super::share(1000.0 * joules, run.residues as f64)
}

#[rustfmt::skip]
pub(super) const FINDINGS: [Column<Finding>; 3] = [
    Column::new("tier", "", |finding| Cell::badge(tone(finding.tier), finding.tier.to_string())),
    Column::new("finding", "", |finding| Cell::text(format!("{}: {}", finding.subject, finding.text))),
    Column::new("in verdict", "", |finding| Cell::text(if finding.in_verdict { "yes" } else { "no" })),
];

pub(super) fn tone(tier: Tier) -> Tone {
    match tier {
        Tier::None => Tone::Good,
        Tier::Mild => Tone::Fair,
        Tier::Critical => Tone::Bad,
    }
}

/// Workers and their GPUs.
#[rustfmt::skip]
pub(super) const WORKERS: [Column<WorkerSummary>; 11] = [
    Column::new("worker", "", |worker| Cell::count(worker.worker)),
    Column::new("GPU", "", |worker| Cell::known(worker.gpu_uuid.as_deref().map(short_uuid))),
    Column::new("product", "", |worker| Cell::known(worker.gpu_name.as_deref().map(product))),
    Column::new("batches", "", |worker| Cell::count(worker.batches)),
    Column::new("sequences", "", |worker| Cell::count(worker.sequences)),
    Column::new("tokens", "%", |worker| Cell::percent(worker.token_share)),
    Column::new("sequences/s", "", |worker| Cell::decimals(worker.throughput.sequences_per_s, 1)),
    Column::new("tokens/s", "", |worker| Cell::decimals(worker.throughput.tokens_per_s, 0)),
    Column::new("computing", "%", |worker| Cell::percent(worker.compute_share)),
    Column::new("waiting", "%", |worker| Cell::percent(worker.wait_share)),
    Column::new("idle", "%", |worker| Cell::percent(worker.idle.map(|idle| idle.share))),
];

#[rustfmt::skip]
pub(super) const GPUS: [Column<GpuSummary>; 13] = [
    Column::new("GPU", "", |gpu| Cell::count(gpu.index.map(u64::from))),
    Column::new("host", "", |gpu| Cell::known(gpu.host.as_ref())),
    Column::new("UUID", "", |gpu| Cell::known(gpu.uuid.as_deref().map(short_uuid))),
    Column::new("product", "", |gpu| Cell::known(gpu.name.as_deref().map(product))),
    Column::new("state", "", |gpu| if gpu.lost { Cell::badge(Tone::Bad, "lost") } else { Cell::known(None::<String>) }),
    Column::new("covered", "%", |gpu| Cell::percent(gpu.figures.coverage)),
    Column::new("busy", "%", |gpu| Cell::percent(gpu.figures.mean_utilization)),
    Column::new("tensor", "%", |gpu| Cell::decimals(gpu.figures.values.get("tensor_active").and_then(|value| value.mean), 1)),
    Column::new("peak memory", "MiB", |gpu| Cell::count(gpu.figures.peak_mem_used_mib)),
    Column::new("memory", "MiB", |gpu| Cell::count(gpu.mem_total_mib)),
    Column::new("hottest", "°C", |gpu| Cell::count(gpu.figures.max_temperature_c.map(u64::from))),
    Column::new("power", "W", |gpu| Cell::decimals(gpu.figures.mean_power_w, 0)),
    Column::new("throttled", "%", |gpu| Cell::percent(gpu.figures.throttled_share)),
];

/// The columns of [`GPUS`] that its label tells in text.
pub(super) const LABEL_OF_GPU: usize = 4;

#[rustfmt::skip]
pub(super) const HOSTS: [Column<HostSummary>; 4] = [
    Column::new("covered", "%", |host| Cell::percent(host.coverage)),
    Column::new("CPU busy", "%", |host| Cell::percent(host.mean_cpu_utilization)),
    Column::new("peak memory", "MiB", |host| Cell::count(host.peak_mem_used_mib)),
    Column::new("memory", "MiB", |host| Cell::count(host.mem_total_mib)),
];

#[rustfmt::skip]
pub(super) const REPEATS: [Column<Repeats>; 8] = [
    Column::new("work", "", |of| Cell::text(of.sample.as_ref().unwrap_or(&of.job))),
    Column::new("runs", "", |of| Cell::count(of.runs.len() as u64)),
    Column::new("last", "", |of| Cell::known(of.runs.last())),
    Column::new("tokens/s", "", |of| rate(of.tokens_per_s.as_ref())),
    Column::new("variation", "%", |of| variation(of.tokens_per_s.as_ref())),
    Column::new("least", "", |of| Cell::decimals(of.tokens_per_s.as_ref().map(|rates| rates.min), 0)),
    Column::new("greatest", "", |of| Cell::decimals(of.tokens_per_s.as_ref().map(|rates| rates.max), 0)),
    Column::new("sequences/s", "", |of| Cell::decimals(of.sequences_per_s.as_ref().map(|rates| rates.mean), 1)),
];

/// Speed beside that of a baseline.
#[rustfmt::skip]
pub(super) const BASELINE: [Column<Comparison>; 8] = [
    Column::new("baseline", "", |found| Cell::text(found.of.as_str())),
    Column::new("times as fast", "", |found| Cell::decimals(Some(found.ratio), 2)),
    Column::new("runs", "", |found| Cell::count(found.speed.runs as u64)),
    Column::new("tokens/s", "", |found| rate(Some(&found.speed))),
    Column::new("variation", "%", |found| variation(Some(&found.speed))),
    Column::new("runs before", "", |found| Cell::count(found.baseline.runs as u64)),
    Column::new("tokens/s before", "", |found| rate(Some(&found.baseline))),
    Column::new("variation before", "%", |found| variation(Some(&found.baseline))),
];

fn rate(spread: Option<&Spread>) -> Cell {
    Cell::decimals(spread.map(|spread| spread.mean), 0)
}

fn variation(spread: Option<&Spread>) -> Cell {
    Cell::percent(spread.and_then(|spread| spread.cv))
}

/// Returns the name of a product without its maker.
fn product(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}
