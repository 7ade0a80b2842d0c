//! An estimate as text.

use std::fmt::Write;

use plmkit_contract::plural;

use super::{DeviceTime, Estimate};

/// Formats an estimate: what is to be computed, a line for each device, disk and files.
pub fn table(estimate: &Estimate) -> String {
    let mut text = String::new();
    let work = &estimate.work;
    let flops = estimate.linear_flops + estimate.attention_flops;
    let share = if flops > 0.0 {
        estimate.attention_flops / flops
    } else {
        0.0
    };
    let shards = work.shards.len();
    let lines = [
        format!(
            "{}: {} layers of {}, {} in {}",
            estimate.model,
            estimate.shape.layers,
            estimate.shape.hidden,
            estimate.columns.join(", "),
            estimate.store_dtype
        ),
        format!(
            "work   {}, {}, {}, {}",
            plural(work.samples, "sample"),
            plural(shards, "shard"),
            plural(work.all.sequences, "sequence"),
            plural(work.all.tokens, "token")
        ),
        format!(
            "       {}: {:.1} % attention{}",
            scaled(flops, "FLOP"),
            100.0 * share,
            if work.exact {
                ""
            } else {
                ", from the histogram of lengths"
            }
        ),
        format!(
            "disk   {} stay: shards {}, embeddings {}, reports {}; {} at most, with batches and checkpoints",
            scaled(estimate.disk.results as f64, "B"),
            scaled(estimate.disk.shards as f64, "B"),
            scaled(estimate.disk.embeddings as f64, "B"),
            scaled(estimate.disk.reports as f64, "B"),
            scaled(estimate.disk.peak as f64, "B")
        ),
        format!("files  {}", estimate.disk.files),
    ];
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let width = estimate
        .devices
        .iter()
        .map(|device| device.device.chars().count());
    let width = width.max().unwrap_or(0).max("device".len());
    let gpus = match estimate.gpus.get() {
        1 => "a shard".to_owned(),
        count => format!("on {count}"),
    };
    let _ = writeln!(
        text,
        "\n{:width$}  type  {:>12}  {:>10}  {:>10}  {:>10}  {:>10}",
        "device", "rate", "of peak", "tokens/s", "on one", gpus
    );
    for device in &estimate.devices {
        let last = match estimate.gpus.get() {
            1 => device.largest_shard_hours,
            _ => device.wall_hours,
        };
        let _ = writeln!(
            text,
            "{:width$}  {:4}  {:>12}  {:>10}  {:>10.0}  {:>10}  {:>10}",
            device.device,
            device.dtype,
            scaled(device.flops_per_s, "FLOP/s"),
            of_peak(device),
            device.tokens_per_s,
            duration(device.device_hours),
            duration(last)
        );
    }
    text
}

fn of_peak(device: &DeviceTime) -> String {
    device.mfu.map_or_else(
        || "measured".to_owned(),
        |mfu| format!("{:.0} %", 100.0 * mfu),
    )
}

/// Formats a number with a decimal prefix: `8.32 GB`.
fn scaled(value: f64, unit: &str) -> String {
    let mut value = value;
    for prefix in ["", "k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            let digits = match value {
                _ if prefix.is_empty() => 0,
                100.0.. => 0,
                10.0.. => 1,
                _ => 2,
            };
            return format!("{value:.digits$} {prefix}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0} Z{unit}")
}

/// Formats hours: `12 s`, `3.4 min`, `5.6 h`, `7.8 days`.
fn duration(hours: f64) -> String {
    match hours {
        48.0.. => format!("{:.1} days", hours / 24.0),
        1.0.. => format!("{hours:.1} h"),
        _ if hours * 60.0 >= 1.0 => format!("{:.1} min", hours * 60.0),
        _ => format!("{:.1} s", hours * 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let of = |value| scaled(value, "B");
        assert_eq!(
            [of(0.0), of(999.0), of(999.6), of(1234.0)],
            ["0 B", "999 B", "1.00 kB", "1.23 kB"]
        );
        assert_eq!(
            [of(12.34e9), of(999.9e9), of(2e21)],
            ["12.3 GB", "1.00 TB", "2 ZB"]
        );
        let of = |seconds: f64| duration(seconds / 3600.0);
        assert_eq!(
            [of(0.5), of(90.0), of(5400.0), of(259_200.0)],
            ["0.5 s", "1.5 min", "1.5 h", "3.0 days"]
        );
    }
}
