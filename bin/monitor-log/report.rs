//! `monitor-log report`.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, files_in, files_of, is_hidden, keep_apart};
use plmkit_contract::{io_text, path_text};
use plmkit_logs::event::{Event, EventReader};
use plmkit_logs::gpu_parquet::GpuSamples;
use plmkit_logs::{LogError, SkippedLines, Timestamp};
use plmkit_store::{FileKind, open_input, write_json, write_report};
use plmkit_telemetry::report::{
    Report, Runs, Samples, SamplesSummary, Tier, html, multiqc, sentences,
};
use tracing::{info, warn};

use crate::args::ReportArgs;

/// Writes the report, logs it in sentences, and returns the exit code of the verdict.
pub(crate) fn report(args: &ReportArgs) -> Result<Exit, Fault> {
    let mut events = logs_of(&args.events, &["jsonl"])?;
    // An interrupted job goes on in a later log, whatever its name.
    events.sort_by_cached_key(|path| first_time(path));
    let samples = logs_of(&args.gpu, &["csv", "parquet"])?;
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

/// Returns the logs: files, and for a folder the logs in it and in its subfolders.
fn logs_of(paths: &[PathBuf], extensions: &[&str]) -> Result<Vec<PathBuf>, Fault> {
    let mut logs = Vec::new();
    for path in paths {
        let in_folder = logs_below(path, extensions);
        // What is no folder, and a folder without logs.
        let found = if in_folder.is_empty() {
            files_of(vec![path.clone()], extensions)?
        } else {
            in_folder
        };
        logs.extend(found);
    }
    Ok(logs)
}

/// Returns the logs of a folder and of its subfolders, but not behind links, which may form a circle.
fn logs_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    if !folder.is_dir() {
        return Vec::new();
    }
    let warn = |error: &std::io::Error| warn!("{}: {}", path_text(folder), io_text(error));
    let mut logs = files_in(folder, extensions)
        .inspect_err(warn)
        .unwrap_or_default();
    logs.retain(|path| path.is_file());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut folders: Vec<PathBuf> = folders
        .map(|entry| entry.path())
        .filter(|path| !is_hidden(path))
        .collect();
    folders.sort();
    for folder in folders {
        logs.extend(logs_below(&folder, extensions));
    }
    logs
}

/// Returns the time of the first event of a log; `None` if it is unknown or the log can be read only once.
fn first_time(path: &Path) -> Option<Timestamp> {
    path.is_file().then_some(())?;
    let log = EventReader::new(BufReader::new(open_input(path).ok()?), path);
    let first = log.map_while(Result::ok).next();
    first.as_ref().and_then(Event::time)
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
    let (mut torn, mut skipped) = (false, Vec::new());
    for path in events {
        let read = read_events(path, &mut runs, &mut skipped);
        torn |= read.map_err(|error| explain(FileKind::Events, path, error))?;
    }
    let mut joined = Samples::during(&runs);
    let events = (!events.is_empty()).then(|| runs.finish(torn));
    let mut samples_torn = false;
    for path in samples {
        let read = read_samples(path, &mut joined, &mut skipped);
        samples_torn |= read.map_err(|error| explain(FileKind::Samples, path, error))?;
    }
    let finish = || joined.finish(samples_torn, events.as_ref());
    let samples: Option<SamplesSummary> = (!samples.is_empty()).then(finish);
    let report = Report::new(events, samples, peak_tflops);
    Ok(Report { skipped, ..report })
}

/// Reads an event log. Returns whether a torn last line was left out.
fn read_events(
    path: &Path,
    runs: &mut Runs,
    skipped: &mut Vec<SkippedLines>,
) -> Result<bool, LogError> {
    runs.begin_log();
    let mut log = EventReader::new(BufReader::new(open_input(path)?), path);
    for event in log.by_ref() {
        runs.add(&event?);
    }
    skipped.extend(log.skipped());
    Ok(log.torn())
}

fn read_samples(
    path: &Path,
    samples: &mut Samples,
    skipped: &mut Vec<SkippedLines>,
) -> Result<bool, LogError> {
    let mut log = GpuSamples::open(path)?;
    for sample in log.by_ref() {
        samples.add(&sample?);
    }
    skipped.extend(log.skipped());
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
            info!(
                "no verdict: neither packing, nor the idle time of a run of 10 s, nor enough GPU utilization is known"
            );
            Exit::Done
        }
        Some(verdict) if verdict >= fail_on => {
            warn!("the verdict is {verdict}");
            Exit::Negative
        }
        Some(_) => Exit::Done,
    }
}
