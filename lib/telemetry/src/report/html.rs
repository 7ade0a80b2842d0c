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

const NO_VERDICT: &str = "neither packing nor enough GPU utilization is known";

/// Returns the report as one self-contained HTML file. Text from the logs is escaped.
pub fn html(report: &Report) -> String {
    let mut page = Page::new("Embedding runs");
    match report.verdict {
        Some(tier) => page.verdict(
            tone(tier),
            &format!("verdict: {tier}"),
            &report.verdict_in_words,
        ),
        None => page.verdict(Tone::Fair, "no verdict", NO_VERDICT),
    };
    let (findings, runs, sum) = (&report.findings, report.runs(), report.sum());
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
    page.heading("Findings");
    let (first, more) = findings.split_at(findings.len().min(SHOWN));
    page.table(first, &FINDINGS);
    if !more.is_empty() {
        page.fold(true, &plural(more.len(), "finding"), |page| {
            page.table(more, &FINDINGS);
        });
    }
    if report.events.is_some() {
        let columns = [&[NAME], &RUNS[..]].concat();
        page.heading("Runs");
        page.fold(runs.len() > SHOWN, &plural(runs.len(), "run"), |page| {
            page.table(runs, &columns);
        });
        if let Some(sum) = sum {
            page.table(std::slice::from_ref(sum), &columns);
        }
    }
    let speeds = report.told_speeds();
    if !speeds.is_empty() {
        page.heading("Speed");
        page.table(&speeds, &SPEEDS);
    }
    if let Some(samples) = &report.samples {
        page.heading("GPUs");
        page.table(&samples.gpus, &GPUS);
        for gpu in samples.gpus.iter().take(MAX_CHARTS) {
            add_charts(&mut page, gpu, runs);
        }
    }
    let is_long = runs.len() > SHOWN_CHARTS;
    page.fold(is_long, "Notes and charts of each run", |page| {
        for (place, run) in runs.iter().enumerate() {
            page.subheading(&format!("Run {}", run.setup.run));
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

/// Draws utilization and memory of a GPU over the recording. Its runs are shaded.
fn add_charts(page: &mut Page, gpu: &GpuSummary, runs: &[RunSummary]) {
    let shaded = gpu.chart.runs.iter().map(|(&run, &span)| {
        let name = runs.get(run).map_or("", |run| &run.setup.run);
        (span, name)
    });
    let (shaded, label): (Vec<_>, _) = (shaded.collect(), gpu.label());
    let memory = gpu.mem_total_mib.map(|mib| mib as f64);
    for (what, bins, most) in [
        ("utilization in %", &gpu.chart.utilization, Some(100.0)),
        ("memory in use in MiB", &gpu.chart.memory, memory),
    ] {
        let caption = format!("{label}: {what}");
        page.chart(&caption, &bins.means(), most, &shaded);
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{done, report, runs, started};

    #[test]
    fn the_header_names_what_all_runs_share_and_their_dates() {
        let begun = [(9, "a"), (11, "a"), (12, "b")].into_iter().enumerate();
        let begun = begun.flat_map(|(number, (hour, host))| {
            let run = started(|run| {
                (run.run, run.host) = (number.to_string(), Some(host.to_owned()));
                run.time = format!("2026-01-31T{hour:02}:30:59Z").parse().ok();
                run.model = Some("facebook/esm2_t33_650M_UR50D".to_owned());
                (run.kernel_set, run.token_budget) = (Some("avx512".to_owned()), Some(16_384));
                run.driver_version = Some("580.65.06".to_owned());
                run.cuda_version = Some(format!("13.{number}"));
            });
            // In the next minute.
            let end = done(|done| (done.run, done.elapsed_s) = (number.to_string(), 5.0));
            [run, end]
        });
        let html = html(&report(runs(begun), []));
        for (name, value) in [
            ("model", "facebook/esm2_t33_650M_UR50D"),
            ("date", "2026-01-31 09:30 to 2026-01-31 12:31 UTC"),
            ("kernels", "avx512"),
            ("batch size", "16384 tokens"),
            ("driver", "580.65.06"),
        ] {
            let fact = format!("<div><dt>{name}</dt><dd>{value}</dd></div>");
            assert!(html.contains(&fact), "{fact}: {html}");
        }
        for other in ["host", "CUDA"] {
            assert!(!html.contains(&format!("<dt>{other}</dt>")), "{other}");
        }
        assert!(html.contains("<span class=\"badge fair\">no verdict</span>"));
    }
}
