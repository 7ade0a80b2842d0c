//! From files to a verdict.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use plmkit_check::{AliasLists, Criteria, Findings, Recomputed};
use plmkit_cli::{Exit, Fault, Stop, files_of, keep_apart};
use plmkit_contract::{COMBINED, Manifest, Provenance, Quoted, SOURCE, path_text};
use plmkit_store::{AtomicFile, EmbeddingsReader, FileKind, StoreError, read_sealed};

use crate::args::{Args, Command, JudgeArgs, RecomputeArgs};
use crate::dataset::{check_shards, known_parts};
use crate::golden::Golden;
use crate::groups::{EmbeddingsFile, Reading, batches_digest};
use crate::lists::{read_lists, without_lists};
use crate::partial_report::{Judgement, PartialReport};
use crate::recompute::{Again, GOLDEN_ORDINALS, Recompute, Sample, open, read, same_heads};
use crate::reference::read_reference;
use crate::report::ComparedWith;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    match args.command {
        Some(Command::Judge(args)) => judge(args),
        Some(Command::Recompute(args)) => recompute(args),
        None => validate(&args.with_files()?, stop),
    }
}

fn validate(args: &Args, stop: &Stop) -> Result<Exit, Fault> {
    // What is missing or foreign should show before hours of reading.
    let embeddings = EmbeddingsFile::open_all(&args.embeddings)?;
    let stitched = embeddings.iter().any(|file| file.layout.stitched);
    let labels = embeddings.last().map(|file| file.layout.labels);
    let dataset = args.dataset.as_ref();
    let parts = dataset.map(known_parts).transpose()?;

    let mut criteria = Criteria::default();
    criteria.expectations = args.judging.expectations();
    let mut found = PartialReport::default();
    for path in &args.rejects {
        found.read_list(path, args.name(path))?;
    }
    for list in found.lists().filter(|list| list.of_rows) {
        criteria.add_not_embedded(&list.lines);
    }
    let manifest = read_manifest(args.manifest.as_deref(), &mut criteria)?;
    if let (Some(dataset), Some(manifest)) = (dataset, &manifest) {
        check_shards(dataset, manifest)?;
    }
    if !args.reference.is_empty() {
        criteria.reference = Some((read_reference(args, stop)?, args.tiers()));
    }
    let golden = args.golden.as_deref().map(Golden::read).transpose()?;
    let golden = golden.unwrap_or_default();
    let is_recomputed = args.model.is_some() || !args.recomputed.is_empty();
    let has_rows = embeddings.iter().any(|file| file.rows.rows() > 0);
    let mut sample = None;
    criteria.not_recomputed = match args.sampling.sample {
        0 => Some("--sample 0 was given"),
        _ if is_recomputed => Some("the embeddings have no rows"),
        _ => None,
    };
    if is_recomputed && has_rows && args.sampling.sample > 0 {
        let chosen = Sample::new(args.sampling, &args.shards, manifest.as_ref(), stitched)?;
        let again = again(args, &chosen, &criteria.aliases, &embeddings, &golden)?;
        check_model(&again, &embeddings)?;
        criteria.recomputed = Some(again.0);
        sample = Some(chosen);
    }
    let reading = Reading {
        args,
        criteria: &criteria,
        stop,
        labels: labels.unwrap_or_default(),
        stitched,
        sample,
    };
    found.findings = reading.read(embeddings)?;
    if let (Some(path), Some(recomputed)) = (&args.golden, &criteria.recomputed) {
        add_golden(&path_text(path), &golden, recomputed, &mut found.findings);
    }
    let manifest_name = args.manifest.as_deref().map(|path| args.name(path));
    let references = args.reference.iter();
    found.conclude(Judgement {
        criteria: &criteria,
        judging: &args.judging,
        outputs: &args.outputs,
        compared_with: ComparedWith {
            manifest: manifest_name.zip(manifest.as_ref()),
            references: references.map(|path| path.to_string_lossy()).collect(),
            min_cosine: (!args.reference.is_empty()).then_some(args.min_cosine),
        },
        dataset: dataset.zip(parts),
    })
}

/// Judges all parts of a set by the partial reports on them.
fn judge(args: JudgeArgs) -> Result<Exit, Fault> {
    let args = args.with_files()?;
    let mut criteria = Criteria::default();
    criteria.expectations = args.judging.expectations();
    let manifest = read_manifest(args.manifest.as_deref(), &mut criteria)?;
    let mut all = PartialReport::default();
    for (place, path) in args.parts.iter().enumerate() {
        let part = PartialReport::read(path)?;
        if place > 0 && part.findings.knows_shards() != all.findings.knows_shards() {
            let what = "expected every part to be validated with --shards, or none";
            let what = format!("{}: {what}", path_text(path));
            return Err(Fault::new(Exit::Data, what));
        }
        all.merge(part);
    }
    for path in &args.rejects {
        all.read_list(path, path_text(path))?;
    }
    let manifest_name = args.manifest.as_deref().map(path_text);
    all.conclude(Judgement {
        criteria: &criteria,
        judging: &args.judging,
        outputs: &args.outputs,
        compared_with: ComparedWith {
            manifest: manifest_name.zip(manifest.as_ref()),
            ..ComparedWith::default()
        },
        dataset: None,
    })
}

/// Reads the manifest, and the lists beside it, which are criteria.
fn read_manifest(path: Option<&Path>, criteria: &mut Criteria) -> Result<Option<Manifest>, Fault> {
    let Some(path) = path else {
        return Ok(None);
    };
    let manifest = read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
    criteria.aliases = read_lists(path, &manifest)?;
    Ok(Some(manifest))
}

/// The sample, as `--model` or `--recomputed` has it.
fn again(
    args: &Args,
    sample: &Sample,
    aliases: &AliasLists,
    files: &[EmbeddingsFile],
    golden: &Golden,
) -> Result<Again, Fault> {
    let source = sample.source()?;
    let Some(model) = &args.model else {
        return read(&args.recomputed, &source);
    };
    let recompute = Recompute::new(model, sample, args.threads, aliases, golden, files);
    Ok(recompute.run(&source)?.0)
}

/// That the rows were computed again by the model of an embeddings file: that of none is no question about these.
fn check_model((recomputed, again): &Again, files: &[EmbeddingsFile]) -> Result<(), Fault> {
    let model = Some(recomputed.model());
    let is_same = |file: &&EmbeddingsFile| file.provenance.text_option("model") == model;
    let same = files.iter().find(is_same);
    let what = match (same, files.first()) {
        (Some(same), _) if same_heads(&same.provenance, again) => return Ok(()),
        (Some(_), _) => {
            "the model of the spot check has another head: expected that of the embeddings"
                .to_owned()
        }
        (None, None) => return Ok(()),
        (None, Some(first)) => {
            let name = first.provenance.model.as_ref();
            let name = Quoted(name.map_or("unknown", |model| &model.name));
            format!(
                "the model of the spot check has the digest {}: expected that of the embeddings, {name} ({})",
                recomputed.model(),
                first.provenance.text_option("model").unwrap_or("unknown")
            )
        }
    };
    Err(Fault::new(Exit::Data, what))
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
    let files = EmbeddingsFile::open_all(&embeddings)?;
    let mut criteria = Criteria::default();
    let manifest = read_manifest(args.manifest.as_deref(), &mut criteria)?;
    let stitched = files.iter().any(|file| file.layout.stitched);
    let sample = Sample::new(args.sampling, &shards, manifest.as_ref(), stitched)?;
    let source = sample.source()?;
    keep_others(&args.out, &source)?;
    check_sources(&files, &shards)?;
    let (golden, aliases) = (Golden::default(), &criteria.aliases);
    let recompute = Recompute::new(&args.model, &sample, args.threads, aliases, &golden, &files);
    let (again, _folder, file) = recompute.run(&source)?;
    check_model(&again, &files)?;
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

/// That the embeddings were made from these shards, and from no others. Combined parts do not know their batches.
fn check_sources(files: &[EmbeddingsFile], shards: &[PathBuf]) -> Result<(), Fault> {
    let wrong = |path: &Path, what: &str| {
        let what = format!("{}: expected {what}", path_text(path));
        Err(Fault::new(Exit::Data, what))
    };
    let is_combined = |file: &EmbeddingsFile| file.provenance.options.contains_key(COMBINED);
    if files.iter().any(is_combined) {
        return Ok(());
    }
    let labels = files.first().map(|file| file.layout.labels);
    let inputs = files.iter().flat_map(|file| {
        let inputs = file.provenance.inputs.iter();
        inputs.map(|input| (input.as_str(), &file.path))
    });
    let mut inputs: BTreeMap<&str, &PathBuf> = inputs.collect();
    for path in shards {
        let batches = batches_digest(&open(path)?, labels.unwrap_or_default())?;
        if inputs.remove(&*batches.to_string()).is_none() && batches.rows() > 0 {
            return wrong(path, "the shard that the embeddings were made from");
        }
    }
    let mut others = inputs.into_values();
    others
        .next()
        .map_or(Ok(()), |path| wrong(path, "embeddings of the shards"))
}
