//! The tables of the page.

use plmkit_contract::plural;
use plmkit_logs::event::Outcome;
use plmkit_page::{Cell, Table, Tone};

use crate::report::text::outcome;
use crate::report::{Finding, GpuSummary, HostSummary, RunSummary, Tier, WorkerSummary};

/// A heading, and the cell below it.
type Column<T> = (&'static str, fn(&T) -> Cell);

fn table<T>(rows: &[T], columns: &[Column<T>]) -> Table {
    let mut table = Table::new(columns.iter().map(|(heading, _)| *heading));
    for row in rows {
        table.row(columns.iter().map(|(_, cell)| cell(row)));
    }
    table
}

#[rustfmt::skip]
pub(super) fn findings(findings: &[Finding]) -> Table {
    table(findings, &[
        ("tier", tier),
        ("finding", |finding| Cell::text(format!("{}: {}", finding.subject, finding.text))),
        ("counts", |finding| Cell::text(if finding.in_verdict { "yes" } else { "no" })),
    ])
}

fn tier(finding: &Finding) -> Cell {
    Cell::badge(tone(finding.tier), finding.tier.to_string())
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
    table(runs, &[
        ("run", |run| Cell::text(run.run.as_str())),
        ("end", end),
        ("device", |run| text_or_dash(run.device.as_ref())),
        ("type", |run| text_or_dash(run.dtype.as_ref())),
        ("batches", |run| count(Some(run.batches))),
        ("sequences", |run| count(Some(run.sequences))),
        ("tokens", |run| count(Some(run.tokens))),
        ("time, s", |run| number(run.elapsed_s, 2)),
        ("sequences/s", |run| number(run.throughput.sequences_per_s, 1)),
        ("residues/s", |run| number(run.throughput.residues_per_s, 0)),
        ("tokens/s", |run| number(run.throughput.tokens_per_s, 0)),
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
    table(workers, &[
        ("worker", |worker| count(Some(worker.worker))),
        ("GPU", |worker| text_or_dash(worker.gpu_uuid.as_ref())),
        ("product", |worker| text_or_dash(worker.gpu_name.as_ref())),
        ("batches", |worker| count(Some(worker.batches))),
        ("sequences", |worker| count(Some(worker.sequences))),
        ("tokens, %", |worker| percent(worker.token_share)),
        ("tokens/s", |worker| number(worker.throughput.tokens_per_s, 0)),
        ("computing, %", |worker| percent(worker.compute_share)),
        ("waiting, %", |worker| percent(worker.wait_share)),
        ("idle, %", |worker| percent(worker.idle.map(|idle| idle.share))),
    ])
}

/// Use of the devices.
#[rustfmt::skip]
pub(super) fn efficiency(runs: &[RunSummary]) -> Table {
    table(runs, &[
        ("run", |run| Cell::text(run.run.as_str())),
        ("GPUs", |run| count(run.gpus.as_ref().map(|gpus| gpus.len() as u64))),
        ("MFU, %", |run| percent(run.efficiency.mfu)),
        ("GPU busy, %", |run| percent(mean_utilization(run))),
        ("covered, %", |run| percent(coverage(run))),
        ("power, W", |run| number(run.efficiency.mean_power_w, 0)),
        ("residues/J", |run| number(run.efficiency.residues_per_joule, 2)),
        ("computing, %", |run| percent(run.stages.compute.as_ref().and_then(|stage| stage.share))),
        ("idle, %", |run| percent(run.idle.map(|idle| idle.share))),
        ("waiting, %", |run| percent(run.idle.map(|idle| idle.waiting))),
        ("packing, %", |run| percent(run.packing.mean_utilization)),
        ("rejected", |run| count(Some(run.rejected))),
    ])
}

/// Returns the mean utilisation of a run's GPUs; `None` if that of one is unknown.
fn mean_utilization(run: &RunSummary) -> Option<f64> {
    let gpus = run.gpus.as_ref().filter(|gpus| !gpus.is_empty())?;
    let shares = gpus.iter().map(|gpu| gpu.mean_utilization);
    Some(shares.sum::<Option<f64>>()? / gpus.len() as f64)
}

/// Returns the coverage of the GPU of a run that was seen least.
fn coverage(run: &RunSummary) -> Option<f64> {
    let shares = run.gpus.iter().flatten().filter_map(|gpu| gpu.coverage);
    shares.reduce(f64::min)
}

#[rustfmt::skip]
pub(super) fn gpus(gpus: &[GpuSummary]) -> Table {
    table(gpus, &[
        ("GPU", |gpu| count(gpu.index.map(u64::from))),
        ("product", |gpu| text_or_dash(gpu.name.as_ref())),
        ("covered, %", |gpu| percent(gpu.coverage)),
        ("busy, %", |gpu| percent(gpu.mean_utilization)),
        ("tensor cores, %", |gpu| percent(gpu.mean_tensor_active)),
        ("memory at most, MiB", |gpu| count(gpu.peak_mem_used_mib)),
        ("memory, MiB", |gpu| count(gpu.mem_total_mib)),
        ("hottest, °C", |gpu| count(gpu.max_temperature_c.map(u64::from))),
        ("power, W", |gpu| number(gpu.mean_power_w, 0)),
        ("clocks held down, %", |gpu| percent(gpu.throttled_share)),
    ])
}

pub(super) fn host(host: &HostSummary) -> String {
    let unknown = || "unknown".to_owned();
    let cpu = host.mean_cpu_utilization;
    let cpu = cpu.map_or_else(unknown, |cpu| format!("{:.1} %", cpu * 100.0));
    let memory = host.peak_mem_used_mib.zip(host.mem_total_mib);
    let memory = memory.map_or_else(unknown, |(used, total)| format!("{used} of {total} MiB"));
    let samples = plural(host.samples, "sample");
    format!("Host: mean CPU utilization {cpu}; memory used at most {memory}; {samples}.")
}

fn text_or_dash(text: Option<impl Into<String>>) -> Cell {
    Cell::text(text.map_or_else(|| "–".to_owned(), Into::into))
}

fn percent(share: Option<f64>) -> Cell {
    number(share.map(|share| share * 100.0), 1)
}

fn count(count: Option<u64>) -> Cell {
    Cell::number(count.map(|count| grouped(&count.to_string())))
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    Cell::number(value.map(|value| grouped(&format!("{value:.decimals$}"))))
}

/// Groups the digits before the decimal point by three.
fn grouped(number: &str) -> String {
    let integer = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (place, digit) in number.chars().enumerate() {
        if place > 0 && place < integer && (integer - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let found = ["7", "123", "1234", "1234567.1234"].map(grouped);
        assert_eq!(found, ["7", "123", "1,234", "1,234,567.1234"]);
    }
}
