//! The tables of the page.

use plmkit_contract::plural;
use plmkit_page::{Cell, Table, Tone};

use crate::report::text::outcome;
use crate::report::{Finding, GpuSummary, HostSummary, QueueState, RunSummary, Tier};

pub(super) fn findings(findings: &[Finding]) -> Table {
    let mut table = Table::new(["tier", "of", "finding", "in the verdict"]);
    for finding in findings {
        let tone = match finding.tier {
            Tier::None => Tone::Good,
            Tier::Mild => Tone::Fair,
            Tier::Critical => Tone::Bad,
        };
        table.row([
            Cell::badge(tone, finding.tier.to_string()),
            Cell::text(finding.subject.as_str()),
            Cell::text(finding.text.as_str()),
            Cell::text(if finding.in_verdict { "yes" } else { "no" }),
        ]);
    }
    table
}

/// What was done, and how fast.
pub(super) fn work(runs: &[RunSummary]) -> Table {
    let mut table = Table::new([
        "run",
        "end",
        "device",
        "type",
        "batches",
        "sequences",
        "tokens",
        "time, s",
        "sequences/s",
        "residues/s",
        "tokens/s",
    ]);
    for run in runs {
        let rates = &run.throughput;
        table.row([
            Cell::text(run.run.as_str()),
            Cell::text(outcome(run.outcome)),
            known(run.device.as_ref()),
            known(run.dtype.as_ref()),
            count(Some(run.batches)),
            count(Some(run.sequences)),
            count(Some(run.tokens)),
            number(run.elapsed_s, 2),
            number(rates.sequences_per_s, 1),
            number(rates.residues_per_s, 0),
            number(rates.tokens_per_s, 0),
        ]);
    }
    table
}

/// How well the devices were used.
pub(super) fn efficiency(runs: &[RunSummary]) -> Table {
    let mut table = Table::new([
        "run",
        "GPUs",
        "MFU, %",
        "GPU busy, %",
        "power, W",
        "residues/J",
        "computing, %",
        "packing, %",
        "queue",
        "queue depth",
    ]);
    for run in runs {
        let efficiency = &run.efficiency;
        let queue = run.queue.state.map(|state| match state {
            QueueState::Full => "full",
            QueueState::Normal => "normal",
            QueueState::Starved => "starved",
        });
        let gpus = run.gpus.as_deref();
        let busy = gpus.and_then(|gpus| {
            let sum: f64 = gpus
                .iter()
                .map(|gpu| gpu.mean_utilization)
                .sum::<Option<f64>>()?;
            (!gpus.is_empty()).then(|| sum / gpus.len() as f64)
        });
        table.row([
            Cell::text(run.run.as_str()),
            count(gpus.map(|gpus| gpus.len() as u64)),
            percent(efficiency.mfu),
            percent(busy),
            number(efficiency.mean_power_w, 0),
            number(efficiency.residues_per_joule, 2),
            percent(run.stages.compute.as_ref().and_then(|stage| stage.share)),
            percent(run.packing.mean_utilization),
            known(queue),
            number(run.queue.mean_depth, 1),
        ]);
    }
    table
}

pub(super) fn gpus(gpus: &[GpuSummary]) -> Table {
    let mut table = Table::new([
        "GPU",
        "product",
        "samples",
        "busy, %",
        "tensor cores, %",
        "memory at most, MiB",
        "memory, MiB",
        "hottest, °C",
        "power, W",
        "clocks held down, samples",
    ]);
    for gpu in gpus {
        table.row([
            count(gpu.index.map(u64::from)),
            known(gpu.name.as_ref()),
            count(Some(gpu.samples)),
            percent(gpu.mean_utilization),
            percent(gpu.mean_tensor_active),
            count(gpu.peak_mem_used_mib),
            count(gpu.mem_total_mib),
            count(gpu.max_temperature_c.map(u64::from)),
            number(gpu.mean_power_w, 0),
            count(gpu.throttled_samples),
        ]);
    }
    table
}

pub(super) fn host(host: &HostSummary) -> String {
    let cpu = host.mean_cpu_utilization;
    let cpu = cpu.map_or_else(
        || "unknown".to_owned(),
        |cpu| format!("{:.1} %", cpu * 100.0),
    );
    let memory = host.peak_mem_used_mib.zip(host.mem_total_mib);
    let memory = memory.map_or_else(
        || "unknown".to_owned(),
        |(used, total)| format!("{used} of {total} MiB"),
    );
    format!(
        "Host: mean CPU utilization {cpu}; memory used at most {memory}; {}.",
        plural(host.samples, "sample")
    )
}

fn known(text: Option<impl Into<String>>) -> Cell {
    Cell::text(text.map_or_else(|| "–".to_owned(), Into::into))
}

fn percent(share: Option<f64>) -> Cell {
    number(share.map(|share| share * 100.0), 1)
}

fn count(count: Option<u64>) -> Cell {
    Cell::number(count.map(|count| grouped(&count.to_string())))
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    Cell::number(value.map(|value| {
        let text = format!("{value:.decimals$}");
        match text.split_once('.') {
            Some((whole, fraction)) => format!("{}.{fraction}", grouped(whole)),
            None => grouped(&text),
        }
    }))
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
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
        let found = ["7", "123", "1234", "1234567"].map(grouped);
        assert_eq!(found, ["7", "123", "1,234", "1,234,567"]);
    }
}
