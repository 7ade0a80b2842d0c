//! A report as a page for people: header, findings, then figures, then charts.

use std::collections::{HashMap, HashSet};

use chrono::DateTime;
use plmkit_contract::plural;
use plmkit_logs::Timestamp;
use plmkit_page::{Page, Table, Tone};

use super::charts::{self, MAX_RUNS};
use super::tables::{BASELINE, FINDINGS, GPUS, NAME, OF_WORK, REPEATS, RUNS, WORKERS, tone};
use super::text::{details, host};
use super::{Finding, Report, RunSummary, RunsSummary, SamplesSummary, Totals, counted};

/// Findings that are not folded away, the worst, and those of one tier and kind.
const SHOWN_FINDINGS: usize = 12;
const SHOWN_ALIKE: usize = 4;

/// A longer table of runs is folded.
const SHOWN_RUNS: usize = 12;

/// With more runs, the charts of each are folded.
const SHOWN_DETAILS: usize = 3;

const NO_VERDICT: &str = "neither packing nor enough GPU utilization is known";

/// Names that the header lists. The others are counted.
const LISTED: usize = 3;

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    add_header(&mut page, report);
    add_findings(&mut page, &report.findings);
    if let Some(events) = &report.events {
        add_runs(&mut page, events);
    }
    if !report.baseline.is_empty() {
        page.heading("Speed over the baseline");
        page.table(&Table::of(&report.baseline, &BASELINE));
    }
    if let Some(samples) = &report.samples {
        add_gpus(&mut page, samples, report.runs());
    }
    add_details(&mut page, report.runs());
    page.list(report.left_out());
    page.finish()
}

/// Adds the verdict, and what the report is about.
fn add_header(page: &mut Page, report: &Report) {
    match report.verdict {
        Some(tier) => page.verdict(
            tone(tier),
            &format!("verdict: {tier}"),
            &report.verdict_in_words,
        ),
        None => page.verdict(Tone::Fair, "no verdict", NO_VERDICT),
    };
    let runs = report.runs();
    let ends: Vec<&str> = runs.iter().map(RunSummary::end).collect();
    let named = |name: fn(&RunSummary) -> Option<String>| listed(runs.iter().filter_map(name));
    let first = runs.iter().filter_map(|run| minute(run.started?));
    let last = runs.iter().filter_map(last_time).filter_map(minute).max();
    let dates = first.min().map(|first| match last {
        Some(last) if last != first => format!("{first} to {last} UTC"),
        _ => format!("{first} UTC"),
    });
    let on_cpu = |run: &RunSummary| Some(run.threads.filter(|_| run.is_on_cpu())?.to_string());
    let model = |run: &RunSummary| run.model.clone().or_else(|| run.model_digest.clone());
    let version =
        |run: &RunSummary| Some([run.tool.as_deref()?, run.version.as_deref()?].join(" "));
    let facts = [
        ("host", named(|run| run.host.clone())),
        ("runs", listed(counted(&ends, "×").into_iter())),
        ("CPU threads", named(on_cpu)),
        ("GPUs", gpus(report)),
        ("model", named(model)),
        ("number type", named(|run| run.dtype.clone())),
        ("kernels", named(|run| run.kernel_set.clone())),
        (
            "token budget",
            named(|run| Some(run.token_budget?.to_string())),
        ),
        ("sample", named(|run| run.sample.clone())),
        ("version", named(version)),
        ("driver", named(|run| run.driver_version.clone())),
        ("CUDA", named(|run| run.cuda_version.clone())),
        ("date", dates),
        ("report", Some(format!("monitor-log {}", report.version))),
    ];
    let facts = facts.into_iter();
    page.facts(facts.filter_map(|(name, value)| Some((name, value?))));
}

/// Returns the minute of a time.
fn minute(time: Timestamp) -> Option<String> {
    Some(time.to_string().get(..16)?.replace('T', " "))
}

/// Returns when a run ended, or its last known batch.
fn last_time(run: &RunSummary) -> Option<Timestamp> {
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
    if !runs.is_empty() && runs.iter().all(RunSummary::is_on_cpu) {
        return None;
    }
    let mut names: Vec<&str> = samples.filter_map(|gpu| gpu.name.as_deref()).collect();
    if names.is_empty() {
        let last = runs.iter().rev().find_map(|run| run.gpu_names.as_ref());
        names.extend(last.into_iter().flatten().map(String::as_str));
    }
    listed(counted(&names, "×").into_iter())
}

fn add_findings(page: &mut Page, findings: &[Finding]) {
    page.heading("Findings");
    if findings.is_empty() {
        page.paragraph("None.");
        return;
    }
    let mut alike = HashMap::new();
    let (mut shown, mut others) = (Vec::new(), Vec::new());
    for finding in findings {
        let alike = alike.entry((finding.tier, finding.kind)).or_insert(0);
        *alike += 1;
        let is_shown = *alike <= SHOWN_ALIKE && shown.len() < SHOWN_FINDINGS;
        if is_shown { &mut shown } else { &mut others }.push(finding.clone());
    }
    page.table(&Table::of(&shown, &FINDINGS));
    if !others.is_empty() {
        let summary = format!("more: {}", plural(others.len(), "finding"));
        page.fold(true, &summary, |page| {
            page.table(&Table::of(&others, &FINDINGS));
        });
    }
}

fn add_runs(page: &mut Page, events: &RunsSummary) {
    page.heading("Runs");
    if events.runs.is_empty() {
        page.paragraph("The event log holds no run.");
        return;
    }
    let samples = events.by_sample.iter().filter(|totals| totals.runs > 1);
    add_rows(page, "sample", &samples.cloned().collect::<Vec<_>>());
    let runs = events.runs.iter().map(|run| Totals::new(&[run]));
    add_rows(page, "run", &runs.collect::<Vec<_>>());
    if !events.repeats.is_empty() {
        page.table(&Table::of(&events.repeats, &REPEATS));
    }
}

/// Adds two tables of runs or samples: work, and use of the devices.
fn add_rows(page: &mut Page, what: &str, rows: &[Totals]) {
    if rows.is_empty() {
        return;
    }
    let (is_long, summary) = (rows.len() > SHOWN_RUNS, plural(rows.len(), what));
    page.fold(is_long, &summary, |page| {
        for columns in [&RUNS[..OF_WORK], &RUNS[OF_WORK..]] {
            page.table(&Table::of(rows, &[&[NAME], columns].concat()));
        }
    });
}

fn add_gpus(page: &mut Page, samples: &SamplesSummary, runs: &[RunSummary]) {
    page.heading("GPUs and host");
    if !samples.gpus.is_empty() {
        page.table(&Table::of(&samples.gpus, &GPUS));
    }
    page.list(samples.hosts.iter().map(host));
    page.list(&samples.notes);
    let figures = charts::gpus(samples, runs);
    if !figures.is_empty() {
        page.paragraph(
            "Line: mean. Band: from the least to the greatest value. Grey: runs on the GPU. All GPUs have the same axes.",
        );
        page.figures(&figures);
    }
    shown_of(page, figures.len(), samples.gpus.len(), "GPU");
}

/// Says that not all have charts.
fn shown_of(page: &mut Page, shown: usize, all: usize, what: &str) {
    if shown < all {
        page.paragraph(&format!("Charts show {shown} of {}.", plural(all, what)));
    }
}

/// Adds the notes, workers and charts of each run.
fn add_details(page: &mut Page, runs: &[RunSummary]) {
    let is_long = runs.len() > SHOWN_DETAILS;
    page.fold(is_long, "Notes and charts of each run", |page| {
        for run in runs {
            add_run(page, run, is_long);
        }
    });
    shown_of(page, MAX_RUNS.min(runs.len()), runs.len(), "run");
}

fn add_run(page: &mut Page, run: &RunSummary, is_folded: bool) {
    let (figures, details) = (charts::run(run), details(run));
    let has_workers = run.by_worker.len() > 1;
    if figures.is_empty() && details.is_empty() && !has_workers {
        return;
    }
    let title = format!("Run {}", run.run);
    if !is_folded {
        page.subheading(&title);
    }
    let summary = format!("{title}: {}", run.end());
    page.fold(is_folded, &summary, |page| {
        page.list(&details);
        if has_workers {
            page.table(&Table::of(&run.by_worker, &WORKERS));
        }
        page.figures(&figures);
    });
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
        let html = html(&report(runs(begun), samples));
        for (name, value) in [
            ("host", "a, b"),
            ("GPUs", "2 × Fake"),
            ("model", "facebook/esm2_t33_650M_UR50D"),
            ("token budget", "50000"),
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
