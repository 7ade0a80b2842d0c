//! A report as a page for people: the verdict, findings, tables, then charts.

use plmkit_contract::plural;
use plmkit_logs::Timestamp;
use plmkit_page::{Page, Tone};

use super::tables::{FINDINGS, GPUS, NAME, RUNS, SPEEDS, tone};
use super::text::details;
use super::{GpuSummary, Report, RunSummary};

/// Longer tables of runs and findings, and notes and charts of more runs, are folded.
const SHOWN: usize = 12;
const SHOWN_CHARTS: usize = 3;
/// Nobody looks at more charts of GPUs, nor of runs.
const MAX_CHARTS: usize = 20;

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    let tone = report.verdict.map_or(Tone::Fair, tone);
    page.verdict(tone, &report.verdict_word(), &report.reasons);
    let (findings, runs, sum) = (&report.findings, report.runs(), report.sum.as_ref());
    if let Some(all) = sum.or(runs.first()) {
        let setup = &all.setup;
        let facts = [
            ("host", setup.host.clone()),
            ("model", setup.model.clone()),
            ("device", setup.device.clone()),
            ("number type", setup.dtype.clone()),
            ("kernels", setup.kernel_set.clone()),
            (
                "batch size",
                setup.token_budget.map(|tokens| format!("{tokens} tokens")),
            ),
            ("driver", setup.driver_version.clone()),
            ("CUDA", setup.cuda_version.clone()),
            ("date", dates(all)),
        ];
        let known = facts.into_iter();
        page.facts(known.filter_map(|(name, value)| Some((name, value?))));
    }
    if !findings.is_empty() {
        page.heading("Findings");
    }
    let (first, more) = findings.split_at(findings.len().min(SHOWN));
    page.table(first, &FINDINGS);
    if !more.is_empty() {
        page.fold(true, &plural(more.len(), "finding"), |page| {
            page.table(more, &FINDINGS);
        });
    }
    if report.runs.is_some() {
        let columns = [&[NAME], &RUNS[..]].concat();
        let is_long = runs.len() > SHOWN;
        page.heading("Runs")
            .table(sum.filter(|_| is_long), &columns);
        page.fold(is_long, &plural(runs.len(), "run"), |page| {
            page.table(runs.iter().chain(sum), &columns);
        });
    }
    let speeds = report.told_speeds();
    if !speeds.is_empty() {
        page.heading("Speed");
        page.table(&speeds, &SPEEDS);
    }
    if let Some(gpus) = report.gpus.as_ref().filter(|gpus| !gpus.is_empty()) {
        page.heading("GPUs");
        page.table(gpus, &GPUS);
        for gpu in gpus.iter().take(MAX_CHARTS) {
            add_chart(&mut page, gpu, runs);
        }
    }
    let is_long = runs.len() > SHOWN_CHARTS;
    page.fold(is_long, "Notes and charts of each run", |page| {
        for (place, run) in runs.iter().enumerate() {
            page.subheading(&format!("Run {}", run.name));
            page.list(details(run));
            if place < MAX_CHARTS {
                page.chart("tokens/s", &run.rate.means(), None, &[]);
            }
        }
    });
    page.list(report.skipped.iter().map(ToString::to_string));
    page.finish()
}

/// Returns the minutes in which the runs began and ended.
fn dates(run: &RunSummary) -> Option<String> {
    let minute = |time: Timestamp| time.format("%F %H:%M");
    let (first, last) = (minute(run.setup.time?), minute(run.ended?));
    Some(format!("{first} to {last} UTC"))
}

/// Draws the utilization of a GPU over the recording. Its runs are shaded.
fn add_chart(page: &mut Page, gpu: &GpuSummary, runs: &[RunSummary]) {
    let shaded = gpu.runs.iter().map(|(&run, &span)| {
        let name = runs.get(run).map_or("", |run| &*run.name);
        (span, name)
    });
    let (shaded, label): (Vec<_>, _) = (shaded.collect(), gpu.label());
    let caption = format!("{label}: utilization in %");
    page.chart(&caption, &gpu.busy.means(), Some(100.0), &shaded);
}
