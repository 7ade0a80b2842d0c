//! From files to a verdict.

use clap::ValueEnum;
use plmkit_check::{CheckOutcome, Criteria, Expectations, RejectsLists, Verdict, check_parts};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Labels, Manifest, plural};
use plmkit_store::{
    EmbeddingsReader, FileKind, read_rejects, read_sealed, write_json, write_report,
};
use tracing::{error, info, warn};

use crate::args::Args;
use crate::dataset::Dataset;
use crate::groups::{EmbeddingsFile, Reading};
use crate::html::html;
use crate::mqc::table;
use crate::reference::read_reference;
use crate::report::{InputFile, InputFiles, VerdictReport};
use crate::spot_check::Sampling;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let args = args.with_files()?;
    // What is missing or foreign should show before hours of reading.
    let mut stitched = false;
    let mut labels = Labels::default();
    let mut origin = None;
    let mut embeddings = Vec::new();
    for (position, path) in args.embeddings.iter().enumerate() {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        stitched |= opened.layout().stitched;
        labels = opened.layout().labels;
        embeddings.push(EmbeddingsFile::new(position, &opened));
        // The check `origin` finds the files that are unlike the others.
        origin.get_or_insert_with(|| (opened.provenance().clone(), opened.layout().clone()));
    }
    let dataset = args.dataset.as_ref();
    let known = dataset.map(Dataset::parts).transpose()?;

    let mut criteria = Criteria::default();
    criteria.expectations = args
        .expect
        .iter()
        .cloned()
        .fold(Expectations::default(), Expectations::and);
    criteria.keep_map = args.html.is_some();
    let mut files = InputFiles::default();
    let mut rejects = RejectsLists::default();
    for path in &args.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        let name = args.name(path);
        let lines = list.lines.len() as u64;
        files
            .rejects
            .push(InputFile::new(&name, lines, &list.digest));
        rejects.add(&name, &list);
        if list.of_rows {
            criteria.add_not_embedded(&list.lines);
        }
    }
    if let Some(path) = &args.manifest {
        let manifest: Manifest =
            read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
        if let Some(dataset) = dataset {
            dataset.check_shards(&manifest)?;
        }
        files.manifest = Some(manifest);
    }
    if let Some(path) = &args.reference {
        criteria.reference = Some((read_reference(path)?, args.tiers()));
    }
    let reading = Reading {
        args: &args,
        criteria: &criteria,
        stop,
        labels,
        stitched,
        sampling: args.model.is_some().then(|| Sampling {
            rows: args.sample.get(),
            seed: args.seed,
            files: embeddings.len(),
        }),
    };
    let (mut findings, group) = reading.read(embeddings)?;
    let map = findings.take_map();
    files.shards = group.shards.into_iter().map(|(_, file)| file).collect();
    files.embeddings = group.embeddings.into_iter().map(|(_, file)| file).collect();
    let mut verdict = findings.verdict(&criteria, files.manifest.as_ref(), &rejects);
    let found: Vec<(String, String)> = files.embeddings.iter().map(InputFile::part).collect();
    let parts = check_parts(known, &found, &group.begins);
    verdict.checks.push(parts);
    if let Some(model) = &args.model {
        let compared = group.sample.compare(&args, model)?;
        verdict.add_spot_check(compared);
    }
    for check in args.skip.iter().filter_map(ValueEnum::to_possible_value) {
        verdict.skip(check.get_name());
    }

    let report = VerdictReport::new(&args, origin.as_ref(), &files, &verdict);
    if let Some(path) = &args.report {
        write_json(path, &report)?;
    }
    if let Some(path) = &args.mqc {
        write_json(path, &table(path, &report))?;
    }
    if let Some(path) = &args.html {
        write_report(path, &html(&report, &map))?;
    }
    // Before the folder is written to: that of an archive may not be writable.
    log_verdict(&verdict, args.min_cosine);
    // Without shards there is less to say than what it says already.
    if let Some(dataset) = dataset.filter(|dataset| dataset.has_shards()) {
        dataset.write(&report)?;
    }
    Ok(if verdict.passed() {
        Exit::Done
    } else {
        Exit::Negative
    })
}

/// Logs one line for each check that failed, and a summary.
fn log_verdict(verdict: &Verdict, min_cosine: f64) {
    for check in verdict.failed() {
        error!("{check}");
    }
    if !verdict.not_compared.is_empty() {
        warn!(
            "reference: not compared: {}; only columns of one vector a row are compared, if the reference has them",
            verdict.not_compared.join(", ")
        );
    }
    for column in &verdict.agreement {
        if let Some(unrelated) = column
            .unrelated_median
            .filter(|&unrelated| unrelated >= min_cosine)
        {
            warn!(
                "reference: {}: unrelated proteins have a median cosine of {unrelated:.6}: --min-cosine {min_cosine} says little",
                column.column
            );
        }
    }
    let names = |outcome| {
        let checks = verdict.checks.iter();
        let checks = checks.filter(|check| check.outcome == outcome);
        let names: Vec<&str> = checks.map(|check| check.name).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let truncated = match (verdict.truncated, verdict.residues_truncated) {
        (0, _) => String::new(),
        // What the manifest counts is of rows that are missing, too.
        (rows, Some(lost)) if verdict.passed() => {
            format!(", {rows} truncated by {}", plural(lost, "residue"))
        }
        (rows, _) => format!(", {rows} truncated"),
    };
    info!(
        "{}{truncated}; passed: {}; failed: {}; skipped: {}",
        plural(verdict.rows, "row"),
        names(CheckOutcome::Pass),
        names(CheckOutcome::Fail),
        names(CheckOutcome::Skipped)
    );
}
