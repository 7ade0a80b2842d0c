//! From files to a verdict.

use std::path::Path;

use plmkit_check::{Criteria, check_parts};
use plmkit_cli::{Exit, Fault, Program, Stop};
use plmkit_contract::{Labels, ListedFile, Manifest, path_text};
use plmkit_store::{EmbeddingsReader, FileKind, read_rejects, read_sealed};

use crate::args::{Args, Command, MergeArgs};
use crate::checked::Checked;
use crate::dataset::Dataset;
use crate::golden::Golden;
use crate::groups::{EmbeddingsFile, Reading};
use crate::lists::read_lists;
use crate::reference::read_reference;
use crate::report::ComparedWith;
use crate::spot_check::Sampling;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let quiet = args.common().quiet;
    match args.command {
        Some(Command::Merge(args)) => return merge(args),
        Some(Command::Combine(args)) => return args.run(quiet, stop),
        Some(Command::Select(args)) => return args.run(stop),
        Some(Command::Lookup(args)) => return args.run(stop),
        Some(Command::Export(args)) => return args.run(quiet, stop),
        None => {}
    }
    let args = args.with_files()?;
    // What is missing or foreign should show before hours of reading.
    let mut stitched = false;
    let mut labels = Labels::default();
    let mut embeddings = Vec::new();
    for (position, path) in args.embeddings.iter().enumerate() {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        stitched |= opened.layout().stitched;
        labels = opened.layout().labels;
        embeddings.push(EmbeddingsFile::new(position, &opened));
    }
    let dataset = args.dataset.as_ref();
    let known = dataset.map(Dataset::parts).transpose()?;

    let mut criteria = Criteria::default();
    criteria.expectations = args.judging.expectations();
    criteria.keep_map = args.outputs.html.is_some() || args.outputs.findings.is_some();
    let mut checked = Checked::default();
    for path in &args.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        if list.of_rows {
            criteria.add_not_embedded(&list.lines);
        }
        checked.add_list(args.name(path), list);
    }
    let manifest = args.manifest.as_deref().map(read_manifest).transpose()?;
    if let Some((path, manifest)) = args.manifest.as_deref().zip(manifest.as_ref()) {
        criteria.aliases = read_lists(path, manifest)?;
    }
    if let (Some(dataset), Some(manifest)) = (dataset, &manifest) {
        dataset.check_shards(manifest)?;
    }
    if !args.reference.is_empty() {
        criteria.reference = Some((read_reference(&args, stop)?, args.tiers()));
    }
    let golden = args.golden.as_deref().map(Golden::read).transpose()?;
    let golden = golden.unwrap_or_default();
    let reading = Reading {
        args: &args,
        criteria: &criteria,
        stop,
        labels,
        stitched,
        sampling: args.model.is_some().then(|| {
            let rows: Vec<u64> = embeddings.iter().map(|file| file.rows).collect();
            Sampling::new(args.sample.get(), args.seed, &rows)
        }),
    };
    let mut group = reading.read(embeddings)?;
    checked.map = group.findings.take_map();
    checked.findings = group.findings;
    let files = &mut checked.files;
    files.shards = group.shards.into_iter().map(|(_, file)| file).collect();
    files.embeddings = group.embeddings.into_iter().map(|(_, file)| file).collect();
    let found: Vec<(String, String)> = files.embeddings.iter().map(ListedFile::part).collect();
    let parts = check_parts(known, &found, &group.begins);
    if let Some(model) = &args.model {
        checked.spot_check = Some(group.sample.compare(&args, model, &golden)?);
    }
    let path = args.manifest.as_deref();
    let compared_with = ComparedWith {
        manifest: path.map(|path| args.name(path)).zip(manifest.as_ref()),
        references: args
            .reference
            .iter()
            .map(|path| path.to_string_lossy())
            .collect(),
        min_cosine: (!args.reference.is_empty()).then_some(args.min_cosine),
    };
    checked.conclude(
        &criteria,
        &args.judging,
        compared_with,
        parts,
        &args.outputs,
        dataset,
    )
}

/// Puts together what was found in parts of a set, and judges the whole.
fn merge(args: MergeArgs) -> Result<Exit, Fault> {
    let args = args.with_files()?;
    let mut criteria = Criteria::default();
    criteria.expectations = args.judging.expectations();
    let manifest = args.manifest.as_deref().map(read_manifest).transpose()?;
    if let Some((path, manifest)) = args.manifest.as_deref().zip(manifest.as_ref()) {
        criteria.aliases = read_lists(path, manifest)?;
    }
    let mut all = Checked::default();
    for path in &args.parts {
        let part = Checked::read(path)?;
        if part.findings.knows_shards() != all.findings.knows_shards() && path != &args.parts[0] {
            let what = "expected every part to be validated with --shards, or none";
            return Err(Fault::new(
                Exit::Data,
                format!("{}: {what}", path_text(path)),
            ));
        }
        all.merge(part);
    }
    for path in &args.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        all.add_list(path_text(path), list);
    }
    let name = args.manifest.as_deref().map(path_text);
    let compared_with = ComparedWith {
        manifest: name.zip(manifest.as_ref()),
        ..ComparedWith::default()
    };
    let parts = check_parts(None, &[], &[]);
    all.conclude(
        &criteria,
        &args.judging,
        compared_with,
        parts,
        &args.outputs,
        None,
    )
}

fn read_manifest(path: &Path) -> Result<Manifest, Fault> {
    let manifest = read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
    Ok(manifest)
}
