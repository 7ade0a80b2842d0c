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
    use super::super::{Runs, Samples};
    use super::*;
    use plmkit_logs::event::{BatchDone, Event, RunStarted};
    use plmkit_logs::{GpuSample, Throttle};

    const EVIL: &str = "</title><script>alert(1)</script>\"'&\u{202e}\0";

    #[test]
    fn whatever_a_log_says_is_text() {
        let mut runs = Runs::default();
        let evil = || Some(EVIL.to_owned());
        runs.add(&Event::Run(RunStarted {
            run: EVIL.to_owned(),
            tool: EVIL.to_owned(),
            version: EVIL.to_owned(),
            model_digest: evil(),
            device: evil(),
            dtype: evil(),
            gpu_uuids: Some(vec![EVIL.to_owned()]),
            time: "2026-01-31T12:00:00Z".parse().ok(),
            ..RunStarted::default()
        }));
        for batch in 0..3 {
            runs.add(&Event::Batch(BatchDone {
                run: EVIL.to_owned(),
                batch,
                tokens: 10,
                wait_ms: Some(100.0),
                compute_ms: Some(1.0),
                elapsed_s: Some(batch as f64 + 1.0),
                utilization: Some(0.5),
                oom_splits: 1,
                rejected: 1,
                ..BatchDone::default()
            }));
        }
        let mut samples = Samples::during(&runs);
        for second in 0..10 {
            samples.add(&GpuSample {
                uuid: evil(),
                name: evil(),
                gpu_util: Some(10 * second),
                throttle: Some(Throttle(vec![EVIL.to_owned(), "hw_slowdown".to_owned()])),
                ..GpuSample::at(format!("2026-01-31T12:00:0{second}Z").parse().unwrap())
            });
        }
        let events = runs.finish(true);
        let samples = samples.finish(true, Some(&events));
        let html = html(&Report::new(Some(events), Some(samples), None));
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
