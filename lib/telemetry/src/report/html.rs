//! A report as a page for people: the verdict, findings, tables, then charts.

use std::cmp::Reverse;

use plmkit_kit::plural;
use plmkit_logs::Tier;
use plmkit_page::Page;

use super::gpu::MAX_PAUSE_S;
use super::moments::micros;
use super::tables::{FINDINGS, GPUS, NAME, RUNS};
use super::text::details;
use super::{Finding, GpuSummary, Report, RunSummary, wall};

/// Longer tables of runs and findings are folded, and so are notes on more runs.
const SHOWN: usize = 12;
/// Nobody looks at more runs, findings or GPUs.
const MOST: usize = 50;

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    let (tone, verdict, reasons) = report.headline();
    page.verdict(tone, &verdict, reasons);
    add_to(&mut page, report);
    page.finish()
}

/// Adds the report to a page, without its verdict. Of many runs, the page has the longest.
pub fn add_to(page: &mut Page, report: &Report) {
    let (findings, runs, sum) = (&report.findings, report.runs(), report.sum.as_ref());
    if let Some(all) = sum.or(runs.first()) {
        let setup = &all.setup;
        #[rustfmt::skip]
        let facts = [
            ("host", setup.host.clone()),
            ("model", setup.model.clone()),
            ("device", setup.device.clone()),
            ("number type", setup.dtype.clone()),
            ("kernels", setup.kernel_set.clone()),
            ("batch size", setup.token_budget.map(|tokens| format!("{tokens} tokens"))),
            ("driver", setup.driver_version.clone()),
            ("CUDA", setup.cuda_version.clone()),
            ("date", setup.time.zip(all.ended).map(|(from, to)| format!("{} to {} UTC", from.format("%F %H:%M"), to.format("%F %H:%M")))),
        ];
        let known = facts.into_iter();
        page.facts(known.filter_map(|(name, value)| Some((name, value?))));
    }
    if !findings.is_empty() {
        page.heading("Findings");
    }
    let is_shown = |finding: &&Finding| findings.len() <= SHOWN || finding.tier > Tier::None;
    let (first, more) = findings.split_at(findings.iter().take(SHOWN).filter(is_shown).count());
    page.table(first, &FINDINGS);
    let (told, all) = (more.len().min(MOST), plural(findings.len(), "finding"));
    page.fold(!more.is_empty(), &format!("{told} of {all}"), |page| {
        page.table(more.iter().take(MOST), &FINDINGS);
    });
    let mut longest: Vec<&RunSummary> = runs.iter().collect();
    let mut what = plural(runs.len(), "run");
    if runs.len() > MOST {
        what = format!("the {MOST} longest of {what}");
        longest.sort_by_key(|run| Reverse(run.elapsed_s.map(micros)));
        longest.truncate(MOST);
    }
    let is_long = runs.len() > SHOWN;
    if report.runs.is_some() {
        let columns = [&[NAME], &RUNS[..]].concat();
        page.heading("Runs")
            .table(sum.filter(|_| is_long), &columns);
        page.fold(is_long, &what, |page| {
            let rows = longest.iter().copied();
            page.table(rows.chain(sum.filter(|_| !is_long)), &columns);
        });
    }
    let bars = longest.iter().map(|run| (&*run.name, times_s(run)));
    let bars: Vec<_> = bars.collect();
    page.stacked(&format!("Time of {what}"), &TIMES, &bars);
    if let Some(all) = sum.or(runs.first()) {
        let kernels = &all.total.kernels;
        let names = kernels.keys().map(|name| name.trim_end_matches("_ms"));
        let times_s = kernels.values().map(|ms| ms / 1000.0).collect();
        let (names, bars) = (names.collect::<Vec<_>>(), [(&*all.name, times_s)]);
        page.stacked("Computing time by kernels", &names, &bars);
    }
    if let Some((_, rate)) = wall::at_work(runs, MAX_PAUSE_S) {
        page.chart("tokens/s", &rate.means(), None, &[]);
    }
    if let Some(gpus) = report.gpus.as_ref().filter(|gpus| !gpus.is_empty()) {
        page.heading("GPUs").table(gpus, &GPUS);
        for gpu in gpus.iter().take(SHOWN) {
            add_chart(page, gpu, runs);
        }
    }
    page.fold(runs.len() > 3, &format!("Notes on {what}"), |page| {
        for run in longest {
            page.subheading(&format!("Run {}", run.name));
            page.list(details(run));
        }
    });
    page.list(report.torn_lines());
}

/// The names of [`times_s`].
#[rustfmt::skip]
const TIMES: [&str; 6] = ["loading", "computing", "waiting for batches", "copying", "writing", "other"];

/// Returns how long a run loaded its model and computed, and what took the rest of its time. Waits, copies and writes that ran beside
/// the computation take none.
fn times_s(run: &RunSummary) -> Vec<f64> {
    let elapsed_s = run.elapsed_s.unwrap_or(0.0);
    let (mut times_s, mut left_s) = (vec![run.load_s.unwrap_or(0.0)], elapsed_s);
    for stages in [&["compute"][..], &["wait"], &["h2d", "d2h"], &["write"]] {
        let shares = stages.iter().filter_map(|stage| run.stage_share(stage));
        let taken_s = (shares.sum::<f64>() * elapsed_s).min(left_s);
        times_s.push(taken_s);
        left_s -= taken_s;
    }
    times_s.push(left_s);
    times_s
}

/// Draws the utilization of a GPU over the recording. Its runs are shaded.
fn add_chart(page: &mut Page, gpu: &GpuSummary, runs: &[RunSummary]) {
    // Nobody can tell more shades apart.
    let shaded = gpu.runs.iter().filter(|_| gpu.runs.len() <= MOST);
    let shaded = shaded.map(|(&run, &span)| {
        let name = runs.get(run).map_or("", |run| &*run.name);
        (span, name)
    });
    let (shaded, caption): (Vec<_>, _) = (shaded.collect(), gpu.label() + ": utilization in %");
    page.chart(&caption, &gpu.busy.means(), Some(100.0), &shaded);
}
