//! A report as a page for people: findings first, then figures, then pictures.

mod charts;
mod tables;

use plmkit_page::Page;

use super::{Report, RunSummary};
use crate::report::pictures::MOST_RUNS;

/// The report as one HTML file, with nothing beside it. All text of the logs is shown as text.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    page.paragraph(&verdict(report));
    findings(&mut page, report);
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
        if !samples.notes.is_empty() {
            page.list(&samples.notes);
        }
        page.figures(charts::gpus(samples).as_slice());
    }
    if let Some(events) = &report.events {
        events.runs.iter().for_each(|run| details(&mut page, run));
        if events.runs.len() > MOST_RUNS {
            page.paragraph(&format!("Pictures are of the first {MOST_RUNS} runs."));
        }
    }
    remarks(&mut page, report);
    page.finish()
}

fn verdict(report: &Report) -> String {
    let verdict = match report.verdict {
        Some(verdict) => format!("Verdict: {verdict}."),
        None => "No verdict: neither packing nor enough GPU utilization is known.".to_owned(),
    };
    format!("{verdict} Reported by monitor-log {}.", report.version)
}

fn findings(page: &mut Page, report: &Report) {
    page.heading("Findings");
    if report.findings.is_empty() {
        page.paragraph("None.");
    } else {
        page.table(&tables::findings(&report.findings));
    }
}

/// What is known of one run alone.
fn details(page: &mut Page, run: &RunSummary) {
    let figures = charts::run(run);
    if figures.is_empty() && run.notes.is_empty() && run.stages.advice.is_none() {
        return;
    }
    page.subheading(&format!("Run {}", run.run));
    page.list(run.stages.advice.iter().chain(&run.notes));
    page.figures(&figures);
}

fn remarks(page: &mut Page, report: &Report) {
    let torn_events = report
        .events
        .as_ref()
        .is_some_and(|events| events.torn_last_line);
    let torn_samples = report
        .samples
        .as_ref()
        .is_some_and(|samples| samples.torn_last_line);
    for (torn, log) in [(torn_events, "event log"), (torn_samples, "sample log")] {
        if torn {
            page.paragraph(&format!(
                "The last line of the {log} is torn and was left out."
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::Throttle;

    use super::*;
    use crate::tests::{batch, report, runs, sample, started};

    const EVIL: &str = "</title><script>alert(1)</script>\"'&\u{202e}\0";

    #[test]
    fn whatever_a_log_says_is_text() {
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
        assert!(
            !html.contains("<script") && html.matches("</title>").count() == 1,
            "{html}"
        );
        assert!(!html.contains('\u{202e}') && !html.contains('\0'));
        assert!(
            html.contains("Run &lt;/title&gt;&lt;script&gt;alert(1)"),
            "{html}"
        );
        assert_eq!(html.matches("<figure>").count(), 4, "{html}");
    }
}
