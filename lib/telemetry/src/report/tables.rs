//! The tables of a report, which text, page and `MultiQC` share.

use plmkit_logs::event::Outcome;
use plmkit_page::{Cell, Column, Tone};

use super::gpu::short_uuid;
use super::{Finding, GpuFigures, GpuSummary, RunSummary, Tier};

/// Amounts that are neither good nor bad, and scales of the others.
const AMOUNT: &str = "Blues";
const RATE: &str = "Greens";
const MORE_IS_BETTER: &str = "RdYlGn";
const LESS_IS_BETTER: &str = "RdYlGn-rev";
/// For numbers that should be 0.
const LOSS: &str = "Reds";

type Run = Column<RunSummary>;

/// A run, or several together: first what people look at first.
#[rustfmt::skip]
pub(super) const RUNS: [Run; 19] = [
    Run::new("outcome", "", |run| end(run.outcome)).multiqc("outcome", "How the run ended", "", true),
    Run::new("sequences", "", |run| Cell::count(run.total.sequences)).multiqc("sequences", "Sequences embedded", AMOUNT, true),
    Run::new("tokens/s", "", |run| Cell::decimals(run.throughput.tokens_per_s, 0)).multiqc("tokens_per_s", "Tokens a second over the run", RATE, true),
    Run::new("idle", "%", |run| Cell::percent(run.idle_share)).multiqc("idle_percent", "Share of the run in which the device did not compute; the target is 5 %", LESS_IS_BETTER, true),
    Run::new("CPU", "%", |run| Cell::percent(run.cpu_share)).multiqc("cpu_percent", "Share of the computing time in which the threads of a run on a CPU had a core", MORE_IS_BETTER, true),
    Run::new("fill", "%", |run| Cell::percent(run.mean_fill)).multiqc("fill_percent", "Mean share of a batch's token budget that was used, last batches left out", MORE_IS_BETTER, true),
    Run::new("MFU", "%", |run| Cell::percent(run.efficiency.mfu)).multiqc("mfu_percent", "Model FLOPs utilization: operations on real tokens over the peak of the devices", MORE_IS_BETTER, true),
    Run::new("GPU busy", "%", |run| Cell::percent(gpu_busy(run))).multiqc("gpu_percent", "Mean utilization over the GPUs of the run", MORE_IS_BETTER, true),
    Run::new("rejected", "", |run| Cell::count(run.total.rejected)).multiqc("rejected", "Sequences that could not be embedded", LOSS, true),
    Run::new("energy", "mJ/residue", |run| Cell::decimals(mj_per_residue(run), 3)).multiqc("mj_per_residue", "Energy that the GPUs used for each residue", LESS_IS_BETTER, true),
    Run::new("device", "", |run| Cell::known(run.setup.device.as_ref())),
    Run::new("type", "", |run| Cell::known(run.setup.dtype.as_ref())),
    Run::new("tokens", "", |run| Cell::count(run.total.tokens)),
    Run::new("time", "s", |run| Cell::decimals(run.elapsed_s, 2)),
    Run::new("waiting", "%", |run| Cell::percent(run.stage_share("wait"))).multiqc("waiting_percent", "Share of the run in which the device waited for batches", LESS_IS_BETTER, false),
    Run::new("sequences/s", "", |run| Cell::decimals(run.throughput.sequences_per_s, 1)).multiqc("sequences_per_s", "Sequences a second over the run", RATE, false),
    Run::new("residues/s", "", |run| Cell::decimals(run.throughput.residues_per_s, 0)).multiqc("residues_per_s", "Residues a second over the run", RATE, false),
    Run::new("GPU hours", "", |run| Cell::decimals(run.gpu_hours, 3)).multiqc("gpu_hours", "Hours of GPUs, with loading the model", AMOUNT, false),
    Run::new("host", "", |run| Cell::known(run.setup.host.as_ref())).multiqc("host", "The machine of the run", "", false),
];

/// The name of a row, for a page: text and `MultiQC` have it elsewhere.
pub(super) const NAME: Run = Run::new("name", "", |run| Cell::text(run.name.as_str()));

/// Returns how a run ended.
pub(super) fn end(outcome: Option<Outcome>) -> Cell {
    let text: &str = outcome.map_or("no end", Into::into);
    match outcome {
        Some(Outcome::Done) => Cell::text(text),
        Some(Outcome::Failed) => Cell::badge(Tone::Bad, text),
        Some(Outcome::Stopped) | None => Cell::badge(Tone::Fair, text),
    }
}

/// Returns the mean utilisation of the GPUs whose utilisation is known.
fn gpu_busy(run: &RunSummary) -> Option<f64> {
    let gpus = run.gpus.iter().flatten();
    let known: Vec<f64> = gpus
        .filter_map(|gpu| gpu.figures.share("gpu_util"))
        .collect();
    super::share(known.iter().sum::<f64>(), known.len() as f64)
}

fn mj_per_residue(run: &RunSummary) -> Option<f64> {
    super::share(1000.0, run.efficiency.residues_per_joule)
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

#[rustfmt::skip]
pub(super) const GPUS: [Column<GpuSummary>; 11] = [
    Column::new("GPU", "", |gpu| Cell::count(gpu.index.map(u64::from))),
    Column::new("UUID", "", |gpu| Cell::text(short_uuid(&gpu.uuid))),
    Column::new("product", "", |gpu| Cell::known(gpu.name.as_ref())),
    Column::new("covered", "%", |gpu| Cell::percent(gpu.figures.coverage)),
    Column::new("busy", "%", |gpu| Cell::percent(gpu.figures.share("gpu_util"))),
    Column::new("peak memory", "MiB", |gpu| whole(&gpu.figures, "mem_used_mib")),
    Column::new("memory", "MiB", |gpu| Cell::count(gpu.mem_total_mib)),
    Column::new("hottest", "°C", |gpu| whole(&gpu.figures, "temperature_c")),
    Column::new("mean power", "W", |gpu| Cell::decimals(gpu.mean_power_w, 0)),
    Column::new("at power limit (normal)", "%", |gpu| Cell::percent(gpu.figures.mean("throttle_sw_power_cap"))),
    Column::new("slowed by heat or supply", "%", |gpu| Cell::percent(gpu.figures.mean("severe"))),
];

fn whole(figures: &GpuFigures, name: &str) -> Cell {
    Cell::decimals(figures.max(name), 0)
}

/// The columns of [`GPUS`] that its label tells in text.
pub(super) const LABEL_OF_GPU: usize = 3;
