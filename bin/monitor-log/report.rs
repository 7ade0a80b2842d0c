//! `monitor-log report`.

use std::path::Path;

use plmkit_cli::{Exit, Fault, NamedPath, keep_apart};
use plmkit_store::{FileKind, write_json, write_report};
use plmkit_telemetry::TelemetryError;
use plmkit_telemetry::event::for_each_event;
use plmkit_telemetry::gpu_parquet::GpuSamples;
use plmkit_telemetry::report::{Report, Runs, Samples, Tier, html, multiqc, sentences};
use tracing::{info, warn};

use crate::args::ReportArgs;

/// Writes the report, says it in sentences, and judges.
pub(crate) fn report(args: &ReportArgs) -> Result<Exit, Fault> {
    check(args)?;
    let report = read(args)?;
    write_json(&args.out, &report)?;
    if let Some(mqc) = &args.mqc {
        write_json(mqc, &multiqc(&report, &sample_of(mqc)))?;
    }
    if let Some(path) = &args.html {
        write_report(path, &html(&report))?;
    }
    for line in sentences(&report) {
        info!("{line}");
    }
    Ok(judge(&report, args.fail_on.map(Tier::from)))
}

fn check(args: &ReportArgs) -> Result<(), Fault> {
    let files = [
        ("--gpu", args.gpu.as_deref()),
        ("--events", args.events.as_deref()),
        ("--out", Some(args.out.as_path())),
        ("--mqc", args.mqc.as_deref()),
        ("--html", args.html.as_deref()),
    ];
    let [inputs, outputs] = [&files[..2], &files[2..]].map(|files| {
        let given = files.iter().filter_map(|&(name, path)| Some((name, path?)));
        given.collect::<Vec<NamedPath>>()
    });
    keep_apart(&inputs, &outputs)
}

/// Events first: they say which samples belong to a run.
fn read(args: &ReportArgs) -> Result<Report, Fault> {
    let mut runs = Runs::default();
    let path = args.events.as_deref();
    let events_torn = path
        .map(|path| {
            let read = for_each_event(path, |event| runs.add(event));
            read.map_err(|error| of_input(FileKind::Events, path, error))
        })
        .transpose()?;
    let mut samples = Samples::during(&runs);
    let events = events_torn.map(|torn| runs.finish(torn));
    let mut samples_torn = None;
    if let Some(path) = &args.gpu {
        let fault = |error| of_input(FileKind::Samples, path, error);
        let mut reader = GpuSamples::open(path).map_err(fault)?;
        for sample in reader.by_ref() {
            samples.add(&sample.map_err(fault)?);
        }
        samples_torn = Some(reader.torn());
    }
    let samples = samples_torn.map(|torn| samples.finish(torn, events.as_ref()));
    Ok(Report::new(events, samples, args.peak_tflops))
}

/// Why a log cannot be read: it may be a file of another kind.
fn of_input(expected: FileKind, path: &Path, error: TelemetryError) -> Fault {
    let mistaken = expected.mistaken(path);
    mistaken.map_or_else(|| error.into(), Fault::from)
}

/// `SAMPLE` of `SAMPLE_mqc.json`.
fn sample_of(path: &Path) -> String {
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
