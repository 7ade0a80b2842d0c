//! `monitor-log report`.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, files_of, keep_apart};
use plmkit_logs::LogError;
use plmkit_logs::event::EventReader;
use plmkit_logs::gpu_parquet::GpuSamples;
use plmkit_store::{FileKind, open_input, write_json, write_report};
use plmkit_telemetry::report::{
    Report, Runs, Samples, SamplesSummary, Tier, html, multiqc, sentences,
};
use tracing::{info, warn};

use crate::args::ReportArgs;

/// Writes the report, logs it in sentences, and returns the exit code of the verdict.
pub(crate) fn report(args: &ReportArgs) -> Result<Exit, Fault> {
    let events = files_of(args.events.clone(), &["jsonl"])?;
    let samples = files_of(args.gpu.clone(), &["csv", "parquet"])?;
    check_paths(&events, &samples, args)?;
    let report = read(&events, &samples, args.peak_tflops)?;
    write_json(&args.out, &report)?;
    if let Some(mqc) = &args.mqc {
        write_json(mqc, &multiqc(&report, &sample_name(mqc)))?;
    }
    if let Some(path) = &args.html {
        write_report(path, &html(&report))?;
    }
    for line in sentences(&report) {
        info!("{line}");
    }
    Ok(judge(&report, args.fail_on))
}

fn check_paths(events: &[PathBuf], samples: &[PathBuf], args: &ReportArgs) -> Result<(), Fault> {
    let events = events.iter().map(|path| ("--events", path.as_path()));
    let samples = samples.iter().map(|path| ("--gpu", path.as_path()));
    let inputs: Vec<NamedPath> = samples.chain(events).collect();
    let mut outputs = vec![("--out", args.out.as_path())];
    outputs.extend(args.mqc.as_deref().map(|path| ("--mqc", path)));
    outputs.extend(args.html.as_deref().map(|path| ("--html", path)));
    keep_apart(&inputs, &outputs)
}

/// Reads the logs. Events come first: they tell which samples belong to a run.
fn read(
    events: &[PathBuf],
    samples: &[PathBuf],
    peak_tflops: Option<f64>,
) -> Result<Report, Fault> {
    let mut runs = Runs::default();
    let mut torn = false;
    for path in events {
        let read = read_events(path, &mut runs);
        torn |= read.map_err(|error| explain(FileKind::Events, path, error))?;
    }
    let mut joined = Samples::during(&runs);
    let events = (!events.is_empty()).then(|| runs.finish(torn));
    let mut samples_torn = false;
    for path in samples {
        let read = read_samples(path, &mut joined);
        samples_torn |= read.map_err(|error| explain(FileKind::Samples, path, error))?;
    }
    let finish = || joined.finish(samples_torn, events.as_ref());
    let samples: Option<SamplesSummary> = (!samples.is_empty()).then(finish);
    Ok(Report::new(events, samples, peak_tflops))
}

/// Reads an event log. Returns whether a torn last line was left out.
fn read_events(path: &Path, runs: &mut Runs) -> Result<bool, LogError> {
    let mut log = EventReader::new(BufReader::new(open_input(path)?), path);
    for event in log.by_ref() {
        runs.add(&event?);
    }
    Ok(log.torn())
}

fn read_samples(path: &Path, samples: &mut Samples) -> Result<bool, LogError> {
    let mut log = GpuSamples::open(path)?;
    for sample in log.by_ref() {
        samples.add(&sample?);
    }
    Ok(log.torn())
}

/// Explains why a log cannot be read: it may be a file of another kind.
fn explain(expected: FileKind, path: &Path, error: LogError) -> Fault {
    let mistaken = expected.mistaken(path);
    mistaken.map_or_else(|| error.into(), Fault::from)
}

/// Returns `SAMPLE` for `SAMPLE_mqc.json`.
fn sample_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.strip_suffix("_mqc").unwrap_or(&stem).to_owned()
}

fn judge(report: &Report, fail_on: Option<Tier>) -> Exit {
    let Some(fail_on) = fail_on else {
        return Exit::Done;
    };
    match report.verdict {
        None => {
            info!("no verdict: neither packing nor enough GPU utilization is known");
            Exit::Done
        }
        Some(verdict) if verdict >= fail_on => {
            warn!("the verdict is {verdict}");
            Exit::Negative
        }
        Some(_) => Exit::Done,
    }
}
