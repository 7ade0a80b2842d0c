//! The speed of a report over that of another.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::repeats::Spread;
use super::{percent, share};

/// Runs of one model on one kind of device, of this report and of its baseline. Only runs that are done count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Model, device and number type.
    pub of: String,
    /// The speed of the runs of this report.
    pub speed: Speed,
    /// The speed of those of the baseline.
    pub baseline: Speed,
    /// The mean speed over that of the baseline.
    pub ratio: f64,
}

/// Tokens a second of some runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// How many runs.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// How they spread; `None` for one run.
    pub spread: Option<Spread>,
}

impl Speed {
    fn new(rates: &[f64]) -> Self {
        Self {
            runs: rates.len(),
            mean: rates.iter().sum::<f64>() / rates.len() as f64,
            spread: Spread::new(rates),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} tokens/s", self.mean)?;
        match self.spread.as_ref().and_then(|spread| spread.cv) {
            Some(cv) => write!(f, " ± {} of {} runs", percent(cv), self.runs),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, ratio) = (&self.of, self.ratio);
        write!(
            f,
            "{of}: {ratio:.2} times the baseline: {}, before {}",
            self.speed, self.baseline
        )
    }
}

/// Compares a report with its baseline, both as JSON. The error says what the baseline lacks.
pub fn compare(report: &Value, baseline: &Value) -> Result<Vec<Comparison>, String> {
    let before = speeds(baseline).ok_or("expected a report of monitor-log with run events")?;
    let now = speeds(report).unwrap_or_default();
    let both = now.iter().filter_map(|(of, rates)| {
        let (speed, baseline) = (Speed::new(rates), Speed::new(before.get(of)?));
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
        let gpus = run["gpu_names"]
            .as_array()
            .filter(|names| !names.is_empty());
        let device = gpus.map(|names| {
            let name = names[0].as_str().unwrap_or("?");
            format!("{} x {name}", names.len())
        });
        let device = device.unwrap_or_else(|| text("device").to_owned());
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
        assert_eq!(found.len(), 1);
        let text = "m on cpu in f32: 2.00 times the baseline: 40 tokens/s ± 35.4 % of 2 runs, before 20 tokens/s";
        assert_eq!(found[0].to_string(), text);
    }

    #[test]
    fn a_baseline_without_runs_of_the_kind_is_refused() {
        let own = report(&[30.0], "done");
        let refused = |baseline: &Value| compare(&own, baseline).is_err();
        assert!(refused(&json!({})) && refused(&report(&[20.0], "stopped")));
        assert!(refused(&report(&[], "done")) && !refused(&own));
    }
}
