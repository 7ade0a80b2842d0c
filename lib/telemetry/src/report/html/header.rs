//! The head of the page: the verdict, and what the report is about.

use std::collections::HashSet;

use chrono::DateTime;
use plmkit_logs::Timestamp;
use plmkit_page::{Page, Tone};

use super::tables::tone;
use crate::report::multiqc::counted;
use crate::report::text::outcome;
use crate::report::verdict::in_words;
use crate::report::{Report, RunSummary};

const NO_VERDICT: &str = "neither packing nor enough GPU utilization is known";

/// Names that are listed. The others are counted.
const LISTED: usize = 3;

pub(super) fn add(page: &mut Page, report: &Report) {
    match report.verdict {
        Some(tier) => page.verdict(tone(tier), &format!("verdict: {tier}"), &in_words(report)),
        None => page.verdict(Tone::Fair, "no verdict", NO_VERDICT),
    };
    let runs = report.runs();
    let ends: Vec<&str> = runs.iter().map(|run| outcome(run.outcome)).collect();
    let named = |name: fn(&RunSummary) -> Option<String>| listed(runs.iter().filter_map(name));
    let first = runs.iter().filter_map(|run| minute(run.started?));
    let last = runs.iter().filter_map(end).filter_map(minute).max();
    let dates = first.min().map(|first| match last {
        Some(last) if last != first => format!("{first} to {last} UTC"),
        _ => format!("{first} UTC"),
    });
    let facts = [
        ("host", named(|run| run.host.clone())),
        ("runs", listed(counted(&ends, "×").into_iter())),
        ("CPU threads", named(cpu_threads)),
        ("GPUs", gpus(report)),
        (
            "model",
            named(|run| run.model.clone().or_else(|| run.model_digest.clone())),
        ),
        ("number type", named(|run| run.dtype.clone())),
        ("kernels", named(|run| run.kernel_set.clone())),
        (
            "tokens of a batch",
            named(|run| Some(run.token_budget?.to_string())),
        ),
        ("sample", named(|run| run.sample.clone())),
        (
            "version",
            named(|run| Some([run.tool.as_deref()?, run.version.as_deref()?].join(" "))),
        ),
        ("driver", named(|run| run.driver_version.clone())),
        ("CUDA", named(|run| run.cuda_version.clone())),
        ("date", dates),
        ("report", Some(format!("monitor-log {}", report.version))),
    ];
    let facts = facts.into_iter();
    page.facts(facts.filter_map(|(name, value)| Some((name, value?))));
}

fn is_on_cpu(run: &RunSummary) -> bool {
    run.device.as_deref() == Some("cpu")
}

/// Returns the threads of the runs on CPUs.
fn cpu_threads(run: &RunSummary) -> Option<String> {
    Some(run.threads.filter(|_| is_on_cpu(run))?.to_string())
}

/// Returns the minute of a time.
fn minute(time: Timestamp) -> Option<String> {
    Some(time.to_string().get(..16)?.replace('T', " "))
}

/// Returns when a run ended, or its last known batch.
fn end(run: &RunSummary) -> Option<Timestamp> {
    let ends = run.by_attempt.iter().filter_map(|attempt| {
        let elapsed_ms = attempt.elapsed_s.unwrap_or(0.0) * 1000.0;
        let end_ms = attempt.started?.unix_ms().checked_add(elapsed_ms as i64)?;
        DateTime::from_timestamp_millis(end_ms)
    });
    ends.max().map(Timestamp::from)
}

/// Lists different values in their order; `None` without any.
fn listed(values: impl Iterator<Item = String>) -> Option<String> {
    let mut known = HashSet::new();
    let mut all: Vec<String> = values.filter(|value| known.insert(value.clone())).collect();
    let others = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    all.extend((others > 0).then(|| format!("{others} more")));
    (!all.is_empty()).then(|| all.join(", "))
}

/// Counts the GPUs of the samples, or else of the runs, by product.
fn gpus(report: &Report) -> Option<String> {
    let (samples, runs) = (report.gpus().iter(), report.runs());
    if !runs.is_empty() && runs.iter().all(is_on_cpu) {
        return None;
    }
    let mut names: Vec<&str> = samples.filter_map(|gpu| gpu.name.as_deref()).collect();
    if names.is_empty() {
        let last = runs.iter().rev().find_map(|run| run.gpu_names.as_ref());
        names.extend(last.into_iter().flatten().map(String::as_str));
    }
    listed(counted(&names, "×").into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{done, report, runs, sample, started};

    #[test]
    fn the_header_names_host_gpus_model_version_and_date() {
        let begun = [(9, "a"), (11, "a"), (12, "b")].into_iter().enumerate();
        let begun = begun.flat_map(|(number, (hour, host))| {
            let run = started(|run| {
                (run.run, run.host) = (number.to_string(), Some(host.to_owned()));
                run.time = format!("2026-01-31T{hour:02}:30:59Z").parse().ok();
                run.model = Some("facebook/esm2_t33_650M_UR50D".to_owned());
                (run.tool, run.version) = ("gpu-embed".to_owned(), "1.2.3".to_owned());
                (run.dtype, run.kernel_set) = (Some("f16".to_owned()), Some("cuda".to_owned()));
                run.token_budget = Some(50_000);
            });
            // In the next minute.
            let end = done(|done| (done.run, done.elapsed_s) = (number.to_string(), 5.0));
            [run, end]
        });
        let samples = (0..2).map(|index| {
            sample(0, |sample| {
                (sample.index, sample.uuid) = (Some(index), Some(format!("GPU-{index}")));
            })
        });
        let mut page = Page::new("");
        add(&mut page, &report(runs(begun), samples));
        let html = page.finish();
        for (name, value) in [
            ("host", "a, b"),
            ("GPUs", "2 × Fake"),
            ("model", "facebook/esm2_t33_650M_UR50D"),
            ("number type", "f16"),
            ("kernels", "cuda"),
            ("tokens of a batch", "50000"),
            ("version", "gpu-embed 1.2.3"),
            ("date", "2026-01-31 09:30 to 2026-01-31 12:31 UTC"),
            ("report", concat!("monitor-log ", env!("CARGO_PKG_VERSION"))),
        ] {
            let fact = format!("<div><dt>{name}</dt><dd>{value}</dd></div>");
            assert!(html.contains(&fact), "{fact}: {html}");
        }
        assert!(html.contains("<span class=\"badge fair\">no verdict</span>"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let names = |count| listed((0..count).map(|name: u32| name.to_string()));
        assert_eq!(names(0), None);
        assert_eq!(names(3).unwrap(), "0, 1, 2");
        assert_eq!(names(5).unwrap(), "0, 1, 2, 2 more");
    }
}
