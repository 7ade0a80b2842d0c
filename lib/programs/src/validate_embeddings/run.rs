//! From files to a verdict.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use plmkit_check::{Criteria, EmbeddedFile, Recomputed};
use plmkit_cli::{Exit, Fault, Stop, ensure_distinct, files_of};
use plmkit_contract::{COMBINED, Manifest, Provenance, RowKey, SOURCE};
use plmkit_kit::{Quoted, path_text};
use plmkit_store::{
    AtomicFile, EmbeddingsReader, FileKind, StoreError, read_rejects, read_sealed, read_shard,
};

use super::args::{Args, Command};
use super::dataset::{check_files, check_folder};
use super::groups::{Reading, batches_digest, open_all};
use super::lists::{read_lists, without_lists};
use super::progress::{Progress, Report, with_bars};
use super::recompute::{Recomputation, SpotModel, folder, read, same_heads};
use super::reference::read_reference;
use super::rows::each_row;
use super::spot_sample::SpotSample;
use super::verdict_files::conclude;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let quiet = args.common.quiet;
    with_bars(quiet, |progress| match args.command {
        Some(command) => recompute(command, progress, stop),
        None => validate(args, None, progress, stop),
    })
}

/// Validates embeddings, with the model of other spot checks if there is one, and tells its progress.
///
/// # Errors
/// A file is missing, damaged or of another kind.
pub fn validate(
    args: Args,
    spot: Option<&mut SpotModel>,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &Stop,
) -> Result<Exit, Fault> {
    let (args, mut own) = (&args.with_files()?, None);
    let mut criteria = Criteria::default();
    // What is missing or foreign should show before hours of reading.
    criteria.earlier = args.dataset.as_deref().map_or(Ok(None), check_folder)?;
    let embeddings = open_all(&args.embeddings, |path| args.name(path))?;
    let stitched = embeddings.iter().any(|file| file.layout.stitched);
    let labels = embeddings.last().map(|file| file.layout.labels);

    criteria.max_rejected = args.options.max_rejected;
    criteria.allow_empty = args.allow_empty;
    for path in &args.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        criteria.add_rejects(args.name(path), list);
    }
    let name = |path: &Path| args.name(path);
    read_manifest(args.manifest.as_deref(), name, &mut criteria)?;
    let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
    if let (Some(dataset), Some(manifest)) = (&args.dataset, manifest) {
        check_files(dataset, manifest)?;
    }
    if let Some(path) = &args.options.reference {
        let reference = read_reference(path, &embeddings, stop)?;
        criteria.reference = Some((reference, args.options.min_cosine));
    }
    let is_recomputed = args.model.is_some() || !args.recomputed.is_empty();
    let has_rows = embeddings.iter().any(|file| file.rows.rows() > 0);
    let mut sample = None;
    criteria.not_recomputed = match args.options.sampling.sample {
        Some(0) => Some("--spot-check 0 was given"),
        _ if is_recomputed => Some("the embeddings have no rows"),
        _ => None,
    };
    if is_recomputed && has_rows && args.options.sampling.sample != Some(0) {
        let aliases = &criteria.aliases;
        let chosen = SpotSample::new(
            args.options.sampling,
            &args.shards,
            manifest,
            aliases,
            stitched,
        )?;
        let again = match &args.model {
            None => read(&args.recomputed, &chosen.source())?,
            Some(model) => {
                let folder = folder(args.temporary.as_deref())?;
                let recomputation = Recomputation {
                    sample: &chosen,
                    files: &embeddings,
                    paths: &args.embeddings,
                    model,
                    threads: args.threads,
                    folder: folder.path(),
                };
                let spot = spot.unwrap_or(&mut own);
                recomputation.run(spot, progress, stop)?.0
            }
        };
        // The files that are read now need memory, too.
        drop(own);
        check_model(&again, &embeddings)?;
        criteria.recomputed = Some(again);
        sample = Some(chosen);
    }
    let reading = Reading {
        args,
        criteria: &criteria,
        progress,
        stop,
        labels: labels.unwrap_or_default(),
        stitched,
        sample: sample.as_ref(),
    };
    let findings = reading.read(embeddings)?;
    conclude(args, &findings, &criteria)
}

/// Reads the manifest, which reports call so, and the lists beside it: they are criteria.
fn read_manifest(
    path: Option<&Path>,
    name: impl Fn(&Path) -> String,
    criteria: &mut Criteria,
) -> Result<(), Fault> {
    if let Some(path) = path {
        let manifest = read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
        criteria.aliases = read_lists(path, &manifest)?;
        criteria.manifest = Some((name(path), manifest));
    }
    Ok(())
}

/// That the rows were computed again by the model of an embeddings file: that of none is no question about these.
fn check_model(again: &Recomputed, files: &[EmbeddedFile]) -> Result<(), Fault> {
    let model = again.made_by.text_option("model");
    let is_same = |file: &&EmbeddedFile| file.provenance.text_option("model") == model;
    let same = files.iter().find(is_same);
    let what = match (same, files.first()) {
        (Some(same), _) if same_heads(&same.provenance, &again.made_by) => return Ok(()),
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
                model.unwrap_or("unknown"),
                first.provenance.text_option("model").unwrap_or("unknown")
            )
        }
    };
    Err(Fault::new(Exit::Data, what))
}

/// Computes a sample of some shards again.
fn recompute(command: Command, progress: Report<'_>, stop: &Stop) -> Result<Exit, Fault> {
    let Command::Recompute {
        embeddings,
        shards,
        manifest,
        model,
        out,
        sampling,
        threads,
    } = command;
    let embeddings = files_of(embeddings, &["parquet"])?;
    let shards = without_lists(files_of(shards, &["parquet"])?);
    let inputs = [("the embeddings", &embeddings), ("--shards", &shards)];
    let inputs = inputs
        .iter()
        .flat_map(|(name, paths)| paths.iter().map(|path| (*name, &**path)));
    let manifest_path = manifest.iter().map(|path| ("--manifest", &**path));
    ensure_distinct(
        &inputs.chain(manifest_path).collect::<Vec<_>>(),
        &[("--out", &out)],
    )?;
    let files = open_all(&embeddings, path_text)?;
    let mut criteria = Criteria::default();
    read_manifest(manifest.as_deref(), path_text, &mut criteria)?;
    let ordinals = check_set(&files, &shards, criteria.manifest.as_ref())?;
    let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
    let stitched = files.iter().any(|file| file.layout.stitched);
    let aliases = &criteria.aliases;
    let sample = SpotSample::new(sampling, &shards, manifest, aliases, stitched)?;
    keep_others(&out, &sample.source(), &ordinals)?;
    let folder = folder(None)?;
    let recomputation = Recomputation {
        sample: &sample,
        files: &files,
        paths: &embeddings,
        model: &model,
        threads,
        folder: folder.path(),
    };
    let (again, file) = recomputation.run(&mut None, progress, stop)?;
    check_model(&again, &files)?;
    let opened = File::open(&file).map_err(StoreError::cannot_read(&file))?;
    AtomicFile::create(&out)?.finish_as(&opened, &file)?;
    Ok(Exit::Done)
}

/// That the embeddings were made from these shards, which are shards of the manifest. Of combined parts, only the parts know theirs.
/// Returns the ordinals in the shards.
fn check_set(
    files: &[EmbeddedFile],
    shards: &[PathBuf],
    manifest: Option<&(String, Manifest)>,
) -> Result<HashSet<u64>, Fault> {
    let mut ordinals = HashSet::new();
    for path in shards {
        let shard = read_shard(path)?;
        let rows = shard.digest.to_string();
        let batches = batches_digest(&shard, files[0].layout.labels)?.to_string();
        let is_of = |work: &Provenance| {
            work.inputs.contains(&batches) || work.options.contains_key(COMBINED)
        };
        let other = match manifest {
            Some((name, listed)) if listed.shards.iter().all(|shard| shard.digest != rows) => name,
            _ if files.iter().any(|file| is_of(&file.provenance)) => {
                ordinals.extend(shard.rows().iter().map(|row| row.key.ordinal));
                continue;
            }
            _ => &files[0].name,
        };
        let what = format_args!("not a shard of {other}");
        return Err(Fault::of_path(Exit::Data, path, what));
    }
    Ok(ordinals)
}

/// That an output that exists is what this work made before: rows of these shards, computed again from the same source.
fn keep_others(out: &Path, source: &str, ordinals: &HashSet<u64>) -> Result<(), Fault> {
    let is_own = || {
        let mut reader = EmbeddingsReader::open(out)?;
        let mut is_own = reader.provenance().text_option(SOURCE) == Some(source);
        let see = |row: &RowKey, _: &[&[f32]]| is_own &= ordinals.contains(&row.ordinal);
        each_row(&mut reader, |_| Ok(()), see)?;
        Ok::<_, Fault>(is_own)
    };
    if out.exists() && !is_own().unwrap_or(false) {
        let what = "exists and is no sample of these shards: choose another path or remove it";
        return Err(Fault::of_path(Exit::CannotCreate, out, what));
    }
    Ok(())
}
