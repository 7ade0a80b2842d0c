//! From files to a verdict.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use plmkit_check::{AliasLists, Criteria, Findings, Recomputed, check_parts};
use plmkit_cli::{Exit, Fault, Program, Stop, files_of, keep_apart};
use plmkit_contract::{
    COMBINED, EmbeddingLayout, Labels, ListedFile, Manifest, Provenance, Quoted, SOURCE, path_text,
};
use plmkit_store::{AtomicFile, EmbeddingsReader, FileKind, StoreError, read_rejects, read_sealed};

use crate::args::{Args, Command, MergeArgs, RecomputeArgs};
use crate::checked::Checked;
use crate::dataset::Dataset;
use crate::golden::Golden;
use crate::groups::{EmbeddingsFile, Reading, batches_digest};
use crate::lists::{read_lists, without_lists};
use crate::recompute::{
    Again, GOLDEN_ORDINALS, Quotas, Recompute, computed, open, read, same_heads,
};
use crate::reference::read_reference;
use crate::report::ComparedWith;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let quiet = args.common().quiet;
    match args.command {
        Some(Command::Merge(args)) => return merge(args),
        Some(Command::Recompute(args)) => return recompute(args),
        Some(Command::Combine(args)) => return args.run(quiet, stop),
        Some(Command::Select(args)) => return args.run(stop),
        Some(Command::Lookup(args)) => return args.run(stop),
        None => {}
    }
    let args = args.with_files()?;
    // What is missing or foreign should show before hours of reading.
    let mut stitched = false;
    let mut labels = Labels::default();
    let mut embeddings = Vec::new();
    let mut layouts = Vec::new();
    for (position, path) in args.embeddings.iter().enumerate() {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        stitched |= opened.layout().stitched;
        labels = opened.layout().labels;
        embeddings.push(EmbeddingsFile::new(position, &opened));
        layouts.push((opened.layout().clone(), opened.provenance().clone()));
    }
    let dataset = args.dataset.as_ref();
    let known = dataset.map(Dataset::parts).transpose()?;

    let mut criteria = Criteria::default();
    criteria.expectations = args.judging.expectations();
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
    let is_recomputed = args.model.is_some() || !args.recomputed.is_empty();
    let has_rows = embeddings.iter().any(|file| file.rows > 0);
    let mut sampled = None;
    criteria.not_recomputed = match args.sampling.sample {
        0 => Some("--sample 0 was given"),
        _ if is_recomputed => Some("the embeddings have no rows"),
        _ => None,
    };
    if is_recomputed && has_rows && args.sampling.sample > 0 {
        let quotas = Quotas::new(args.sampling, &args.shards, manifest.as_ref(), stitched)?;
        let (recomputed, made_by) = again(&args, &quotas, &criteria.aliases, &layouts, &golden)?;
        check_model(&recomputed, &made_by, &layouts)?;
        criteria.recomputed = Some(recomputed);
        sampled = Some((quotas, args.sampling.seed));
    }
    let reading = Reading {
        args: &args,
        criteria: &criteria,
        stop,
        labels,
        stitched,
        sampled,
    };
    let mut group = reading.read(embeddings)?;
    if let (Some(path), Some(recomputed)) = (&args.golden, &criteria.recomputed) {
        add_golden(&path_text(path), &golden, recomputed, &mut group.findings);
    }
    checked.findings = group.findings;
    let files = &mut checked.files;
    files.shards = group.shards.into_iter().map(|(_, file)| file).collect();
    files.embeddings = group.embeddings.into_iter().map(|(_, file)| file).collect();
    let found: Vec<(String, String)> = files.embeddings.iter().map(ListedFile::part).collect();
    let parts = check_parts(known, &found, &group.begins);
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

/// The sample, as `--model` or `--recomputed` has it.
fn again(
    args: &Args,
    quotas: &Quotas,
    aliases: &AliasLists,
    files: &[(EmbeddingLayout, Provenance)],
    golden: &Golden,
) -> Result<Again, Fault> {
    let source = quotas.source()?;
    let Some(model) = &args.model else {
        return read(&args.recomputed, &source);
    };
    let (seed, threads) = (args.sampling.seed, args.threads);
    let recompute = Recompute::new(model, quotas, seed, threads, aliases, files);
    Ok(computed(recompute, golden, &source)?.0)
}

/// That the rows were computed again by the model of an embeddings file: that of none is no question about these.
fn check_model(
    recomputed: &Recomputed,
    again: &Provenance,
    files: &[(EmbeddingLayout, Provenance)],
) -> Result<(), Fault> {
    let mut others = files.iter().map(|(_, made_by)| made_by);
    let same = others
        .clone()
        .find(|made_by| made_by.text_option("model") == Some(recomputed.model()));
    if let Some(same) = same {
        if same_heads(same, again) {
            return Ok(());
        }
        let what = "the model of the spot check has another head: expected that of the embeddings";
        return Err(Fault::new(Exit::Data, what.to_owned()));
    }
    let Some(made_by) = others.next() else {
        return Ok(());
    };
    let name = made_by
        .model
        .as_ref()
        .map_or("unknown", |model| &model.name);
    let digest = made_by.text_option("model").unwrap_or("unknown");
    Err(Fault::new(
        Exit::Data,
        format!(
            "the model of the spot check has the digest {}: expected that of the embeddings, {} ({digest})",
            recomputed.model(),
            Quoted(name)
        ),
    ))
}

/// Compares known vectors with the same computed again.
fn add_golden(file: &str, golden: &Golden, recomputed: &Recomputed, findings: &mut Findings) {
    for (ordinal, protein) in (GOLDEN_ORDINALS..).zip(&golden.proteins) {
        let again = recomputed.vectors((ordinal, 0));
        for (&column, vector) in golden.columns.iter().zip(&protein.vectors) {
            let place = recomputed
                .columns()
                .iter()
                .position(|&other| other == column);
            let again = again
                .zip(place)
                .map(|(again, place)| again[place].as_slice());
            findings.add_golden(file, &protein.id, column, vector, again);
        }
    }
}

/// Computes a sample of some shards again.
fn recompute(args: RecomputeArgs) -> Result<Exit, Fault> {
    let embeddings = files_of(args.embeddings, &["parquet"])?;
    let shards = without_lists(files_of(args.shards, &["parquet"])?);
    let inputs = [("the embeddings", &embeddings), ("--shards", &shards)];
    let inputs = inputs
        .iter()
        .flat_map(|(name, paths)| paths.iter().map(|path| (*name, &**path)));
    let manifest_path = args.manifest.iter().map(|path| ("--manifest", &**path));
    keep_apart(
        &inputs.chain(manifest_path).collect::<Vec<_>>(),
        &[("--out", &args.out)],
    )?;
    let mut files = Vec::new();
    for path in &embeddings {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        files.push((opened.layout().clone(), opened.provenance().clone()));
    }
    let manifest = args.manifest.as_deref().map(read_manifest).transpose()?;
    let lists = args.manifest.as_deref().zip(manifest.as_ref());
    let aliases = lists
        .map(|(path, manifest)| read_lists(path, manifest))
        .transpose()?;
    let aliases = aliases.unwrap_or_default();
    let stitched = files.iter().any(|(layout, _)| layout.stitched);
    let quotas = Quotas::new(args.sampling, &shards, manifest.as_ref(), stitched)?;
    let seed = args.sampling.seed;
    let recompute = Recompute::new(&args.model, &quotas, seed, args.threads, &aliases, &files);
    let source = quotas.source()?;
    keep_others(&args.out, &source)?;
    check_shards(&embeddings, &files, &shards)?;
    let ((recomputed, made_by), _folder, file) = computed(recompute, &Golden::default(), &source)?;
    check_model(&recomputed, &made_by, &files)?;
    let opened = File::open(&file).map_err(StoreError::cannot_read(&file))?;
    AtomicFile::create(&args.out)?.finish_as(&opened, &file)?;
    Ok(Exit::Done)
}

/// That an output that exists is what this work made before: rows that were computed again from the same source.
fn keep_others(out: &Path, source: &str) -> Result<(), Fault> {
    let is_other = |made_by: &Provenance| made_by.text_option(SOURCE) != Some(source);
    let opened = EmbeddingsReader::open(out);
    if out.exists() && opened.map_or(true, |opened| is_other(opened.provenance())) {
        let what = "exists and is no sample of these shards: choose another path or remove it";
        return Err(Fault::new(
            Exit::CannotCreate,
            format!("{}: {what}", path_text(out)),
        ));
    }
    Ok(())
}

/// That the embeddings at these paths were made from these shards, and from no others. Combined parts do not know their batches.
fn check_shards(
    embeddings: &[PathBuf],
    files: &[(EmbeddingLayout, Provenance)],
    shards: &[PathBuf],
) -> Result<(), Fault> {
    let wrong = |path: &Path, what: &str| {
        let what = format!("{}: expected {what}", path_text(path));
        Err(Fault::new(Exit::Data, what))
    };
    let is_combined = |made_by: &Provenance| made_by.options.contains_key(COMBINED);
    let labels = files.first().map(|(layout, _)| layout.labels);
    if files.iter().any(|(_, made_by)| is_combined(made_by)) {
        return Ok(());
    }
    let inputs = embeddings
        .iter()
        .zip(files)
        .flat_map(|(path, (_, made_by))| {
            made_by
                .inputs
                .iter()
                .map(move |input| (input.as_str(), path))
        });
    let mut inputs: BTreeMap<&str, &PathBuf> = inputs.collect();
    for path in shards {
        let shard = open(path)?;
        let batches = batches_digest(&shard, labels.unwrap_or_default())?;
        if inputs.remove(&*batches.to_string()).is_none() && batches.rows() > 0 {
            return wrong(path, "the shard that the embeddings were made from");
        }
    }
    inputs
        .into_values()
        .next()
        .map_or(Ok(()), |path| wrong(path, "embeddings of the shards"))
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
