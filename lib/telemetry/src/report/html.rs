//! A report as a page for people: header, findings, then figures, then charts.

mod charts;
mod header;
mod tables;

use std::collections::HashMap;

use plmkit_contract::plural;
use plmkit_page::Page;

use super::text::outcome;
use super::{
    Finding, HostSummary, Repeats, Report, RunSummary, RunsSummary, SampleTotals, SamplesSummary,
};
use crate::report::pictures::MAX_RUNS;

/// Findings that are not folded away, the worst, and those of one tier and kind.
const SHOWN_FINDINGS: usize = 12;
const SHOWN_ALIKE: usize = 4;

/// A longer table of runs is folded.
const SHOWN_RUNS: usize = 12;

/// With more runs, the charts of each are folded.
const SHOWN_DETAILS: usize = 3;

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    header::add(&mut page, report);
    add_findings(&mut page, &report.findings);
    if let Some(events) = &report.events {
        add_runs(&mut page, events);
    }
    if !report.baseline.is_empty() {
        page.heading("Speed over the baseline");
        page.table(&tables::baseline(&report.baseline));
    }
    if let Some(samples) = &report.samples {
        add_gpus(&mut page, samples, report.runs());
    }
    add_details(&mut page, report.runs());
    let torn_events = report.events.iter().any(|events| events.torn_last_line);
    let torn_samples = report.samples.iter().any(|samples| samples.torn_last_line);
    for (is_torn, log) in [(torn_events, "event"), (torn_samples, "sample")] {
        if is_torn {
            let text = format!("The last line of the {log} log is torn and was left out.");
            page.paragraph(&text);
        }
    }
    page.list(report.skipped.iter().map(ToString::to_string));
    page.finish()
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
        if is_shown { &mut shown } else { &mut others }.push(finding);
    }
    page.table(&tables::findings(&shown));
    if !others.is_empty() {
        let summary = format!("more: {}", plural(others.len(), "finding"));
        let others = tables::findings(&others);
        page.fold(true, &summary, |page| _ = page.table(&others));
    }
}

fn add_runs(page: &mut Page, events: &RunsSummary) {
    let runs = &events.runs;
    page.heading("Runs");
    if runs.is_empty() {
        page.paragraph("The event log holds no run.");
        return;
    }
    let samples = events.by_sample.iter().filter_map(SampleTotals::sentence);
    let repeats = events.repeats.iter().filter_map(Repeats::sentence);
    let sums: Vec<String> = samples.chain(repeats).collect();
    page.fold(sums.len() > SHOWN_RUNS, "samples and repeats", |page| {
        _ = page.list(&sums);
    });
    let (is_long, summary) = (runs.len() > SHOWN_RUNS, plural(runs.len(), "run"));
    page.fold(is_long, &summary, |page| {
        page.table(&tables::work(runs));
        page.table(&tables::efficiency(runs));
    });
}

fn add_gpus(page: &mut Page, samples: &SamplesSummary, runs: &[RunSummary]) {
    page.heading("GPUs and host");
    if !samples.gpus.is_empty() {
        page.table(&tables::gpus(&samples.gpus));
    }
    let hosts = samples.hosts.iter().filter_map(HostSummary::sentence);
    page.list(hosts);
    page.list(&samples.notes);
    let figures = charts::gpus(samples, runs);
    if !figures.is_empty() {
        page.paragraph("Line: mean. Band: from the least to the greatest value. Grey: runs on the GPU. All GPUs have the same axes.");
        page.figures(&figures);
    }
    if figures.len() < samples.gpus.len() {
        let (shown, all) = (figures.len(), plural(samples.gpus.len(), "GPU"));
        page.paragraph(&format!("Pictures are of {shown} of {all}."));
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
    if runs.len() > MAX_RUNS {
        page.paragraph(&format!("Pictures are of the first {MAX_RUNS} runs."));
    }
}

fn add_run(page: &mut Page, run: &RunSummary, is_folded: bool) {
    let figures = charts::run(run);
    let has_workers = run.by_worker.len() > 1;
    let has_text = !run.notes.is_empty() || run.stages.advice.is_some();
    if figures.is_empty() && !has_text && !has_workers {
        return;
    }
    let title = format!("Run {}", run.run);
    if !is_folded {
        page.subheading(&title);
    }
    let summary = format!("{title}: {}", outcome(run.outcome));
    page.fold(is_folded, &summary, |page| {
        let advice = run.stages.advice.iter();
        page.list(advice.chain(&run.remarks()).chain(&run.notes));
        if has_workers {
            page.table(&tables::workers(&run.by_worker));
        }
        page.figures(&figures);
    });
}

#[cfg(test)]
mod tests {
    use plmkit_logs::Throttle;

    use super::*;
    use crate::tests::{batch, report, runs, sample, started};

    const EVIL: &str = "</title><script>alert(1)</script>\"'&\u{202e}\0";

    #[test]
    fn many_runs_and_findings_are_folded_away() {
        let page = |count: usize| {
            let all = (0..count).flat_map(|run| {
                let name = format!("run-{run}");
                let batches = (0..2).map({
                    let name = name.clone();
                    move |number| {
                        batch(number, |batch| {
                            batch.run.clone_from(&name);
                            (batch.tokens, batch.utilization) = (10, Some(0.5));
                            batch.elapsed_s = Some(number as f64 + 1.0);
                        })
                    }
                });
                [started(|run| run.run = name)].into_iter().chain(batches)
            });
            html(&report(runs(all.collect::<Vec<_>>()), []))
        };
        let (few, many) = (page(3), page(200));
        assert!(!few.contains("<details>") && few.contains("<h3>Run run-2</h3>"));
        for (text, count) in [
            ("<summary>200 runs</summary>", 1),
            ("<summary>more: 196 findings</summary>", 1),
            (
                "verdict: critical</span> 200 runs: 200 critical (packing 50.0 %)",
                1,
            ),
            ("<dd>200 × no end</dd>", 1),
            ("<summary>Run run-19: no end</summary>", 1),
            ("<figure>", 20 * 2),
            ("<td>run-199</td>", 2),
            ("<script", 0),
        ] {
            assert_eq!(many.matches(text).count(), count, "{text}");
        }
        assert!(many.len() < 400_000, "{}", many.len());
    }

    #[test]
    fn text_from_a_log_is_escaped() {
        let evil = || Some(EVIL.to_owned());
        let started = started(|run| {
            run.run = EVIL.to_owned();
            (run.tool, run.version) = (EVIL.to_owned(), EVIL.to_owned());
            (run.model_digest, run.device, run.dtype) = (evil(), evil(), evil());
            run.gpu_uuids = Some(vec![EVIL.to_owned()]);
            run.time = "2026-01-31T12:00:00Z".parse().ok();
        });
        let batches = (0..3).map(|number| {
            batch(number, |batch| {
                batch.run = EVIL.to_owned();
                (batch.tokens, batch.oom_splits, batch.rejected) = (10, 1, 1);
                (batch.wait_ms, batch.compute_ms) = (Some(100.0), Some(1.0));
                (batch.elapsed_s, batch.utilization) = (Some(number as f64 + 1.0), Some(0.5));
            })
        });
        let samples = (0..10).map(|second| {
            sample(second, |sample| {
                (sample.uuid, sample.name) = (evil(), evil());
                sample.gpu_util = Some(10 * second);
                sample.throttle = Some(Throttle(vec![EVIL.to_owned(), "hw_slowdown".to_owned()]));
            })
        });
        let html = html(&report(runs([started].into_iter().chain(batches)), samples));
        for (text, count) in [
            ("<script", 0),
            ("</title>", 1),
            ("\u{202e}", 0),
            ("\0", 0),
            ("<h3>Run &lt;/title&gt;&lt;script&gt;alert(1)", 1),
            ("<figure>", 4),
            // GPU, model, number type and version in the header.
            ("<dd>&lt;/title&gt;", 4),
        ] {
            assert_eq!(html.matches(text).count(), count, "{text}: {html}");
        }
    }
}
