//! A report as a page for people: findings, then figures, then charts.

mod charts;
mod tables;

use plmkit_page::Page;

use super::{Report, RunSummary};
use crate::report::pictures::MAX_RUNS;

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    let verdict = report.verdict.map_or_else(
        || "No verdict: neither packing nor enough GPU utilization is known.".to_owned(),
        |verdict| format!("Verdict: {verdict}."),
    );
    let version = report.version;
    page.paragraph(&format!("{verdict} Reported by monitor-log {version}."));
    page.heading("Findings");
    if report.findings.is_empty() {
        page.paragraph("None.");
    } else {
        page.table(&tables::findings(&report.findings));
    }
    if let Some(events) = &report.events {
        page.heading("Runs");
        if events.runs.is_empty() {
            page.paragraph("The event log holds no run.");
        } else {
            page.table(&tables::work(&events.runs));
            page.table(&tables::efficiency(&events.runs));
        }
    }
    if let Some(samples) = &report.samples {
        page.heading("GPUs and host");
        if !samples.gpus.is_empty() {
            page.table(&tables::gpus(&samples.gpus));
        }
        page.paragraph(&tables::host(&samples.host));
        page.list(&samples.notes);
        page.figures(charts::gpus(samples).as_slice());
    }
    if let Some(events) = &report.events {
        events.runs.iter().for_each(|run| details(&mut page, run));
        if events.runs.len() > MAX_RUNS {
            page.paragraph(&format!("Pictures are of the first {MAX_RUNS} runs."));
        }
    }
    let (events, samples) = (&report.events, &report.samples);
    let torn_events = events.as_ref().is_some_and(|events| events.torn_last_line);
    let torn_samples = samples
        .as_ref()
        .is_some_and(|samples| samples.torn_last_line);
    for (torn, log) in [(torn_events, "event"), (torn_samples, "sample")] {
        if torn {
            let text = format!("The last line of the {log} log is torn and was left out.");
            page.paragraph(&text);
        }
    }
    page.finish()
}

/// Adds the notes and charts of one run.
fn details(page: &mut Page, run: &RunSummary) {
    let figures = charts::run(run);
    if figures.is_empty() && run.notes.is_empty() && run.stages.advice.is_none() {
        return;
    }
    page.subheading(&format!("Run {}", run.run));
    page.list(run.stages.advice.iter().chain(&run.notes));
    page.figures(&figures);
}

#[cfg(test)]
mod tests {
    use plmkit_logs::Throttle;

    use super::*;
    use crate::tests::{batch, report, runs, sample, started};

    const EVIL: &str = "</title><script>alert(1)</script>\"'&\u{202e}\0";

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
        ] {
            assert_eq!(html.matches(text).count(), count, "{text}: {html}");
        }
    }
}
