//! From files to a verdict.

use std::path::Path;

use plmkit_check::{CheckOutcome, ExpectedRows, Validator, Verdict, check_parts};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{KeyColumns, Labels, Manifest, RowDigest, path_text, plural};
use plmkit_store::{
    EmbeddingsReader, FileKind, Shard, StoreError, read_rejects, read_sealed, read_shard,
    write_json,
};
use tracing::{error, info, warn};

use crate::args::Args;
use crate::dataset::Dataset;
use crate::mqc::table;
use crate::proteins::add_proteins;
use crate::reference::read_reference;
use crate::report::{InputFile, InputFiles, Report};
use crate::vectors::Vectors;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let args = args.with_files()?;
    // What is missing or foreign should show before hours of reading.
    let mut stitched = false;
    let mut labels = Labels::default();
    let mut origin = None;
    for path in &args.embeddings {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        stitched |= opened.layout().stitched;
        labels = opened.layout().labels;
        // The check `origin` compares the others with the first.
        origin.get_or_insert_with(|| (opened.provenance().clone(), opened.layout().clone()));
    }
    let dataset = args.dataset.as_ref();
    let known = dataset.map(Dataset::parts).transpose()?;

    let mut validator = Validator::new();
    let mut files = InputFiles::default();
    for path in &args.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        let name = args.name(path);
        let lines = list.lines.len() as u64;
        files
            .rejects
            .push(InputFile::new(&name, lines, &list.digest));
        validator.add_rejects(&name, list);
    }
    if let Some(path) = &args.manifest {
        let manifest: Manifest =
            read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
        if let Some(dataset) = dataset {
            dataset.check_shards(&manifest)?;
        }
        files.manifest = Some(manifest.clone());
        validator = validator.with_manifest(manifest);
    }
    if let Some(path) = &args.reference {
        validator = validator.with_reference(read_reference(path)?, args.min_cosine);
    }
    if !args.shards.is_empty() {
        let mut expected = ExpectedRows::default();
        for path in &args.shards {
            check_stop(stop)?;
            let shard = read_shard(path).map_err(|error| error.of_input(FileKind::Shard))?;
            let name = args.name(path);
            let batches = batches_digest(&shard, labels)?;
            validator.add_shard(&name, &shard.provenance, shard.digest, batches);
            if stitched {
                add_proteins(&mut expected, &shard);
            } else {
                shard.rows().iter().for_each(|row| expected.push(&row.key));
            }
            files.shards.push(InputFile::from_rows(&name, shard.digest));
        }
        validator = validator.with_shards(expected);
    }
    let mut begins = Vec::new();
    for path in &args.embeddings {
        let (file, first) = add_embeddings(&mut validator, path, &args, stop)?;
        begins.extend(first.map(|first| (args.name(path), first)));
        files.embeddings.push(file);
    }
    let mut verdict = validator.finish();
    let found: Vec<(String, String)> = files.embeddings.iter().map(InputFile::part).collect();
    verdict.checks.push(check_parts(known, &found, &begins));

    let report = Report::new(&args, origin.as_ref(), &files, &verdict);
    if let Some(path) = &args.report {
        write_json(path, &report)?;
    }
    if let Some(path) = &args.mqc {
        write_json(path, &table(path, &report))?;
    }
    // Before the folder is written to: that of an archive may not be writable.
    log_verdict(&verdict);
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

/// The row digest of the batches file that pack-batches makes of a shard, whatever its options but the `labels`: the digest
/// does not depend on how rows are packed.
fn batches_digest(shard: &Shard, labels: Labels) -> Result<RowDigest, Fault> {
    let rows = shard.rows();
    let mut digest = RowDigest::default();
    let mut next = 0;
    for batch in &shard.batches {
        let end = next + batch.num_rows();
        let batch = shard.pack((next..end).map(|row| rows.get(row)), labels)?;
        let digested = digest.update(&batch);
        digested.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
        next = end;
    }
    Ok(digest)
}

/// Adds all rows of an embeddings file to `validator`. Returns the file and the ordinal of its first row.
fn add_embeddings(
    validator: &mut Validator,
    path: &Path,
    args: &Args,
    stop: &Stop,
) -> Result<(InputFile, Option<u64>), Fault> {
    let mut reader = EmbeddingsReader::open(path)?;
    let layout = reader.layout().clone();
    let name = args.name(path);
    let begun = validator.begin_file(&name, reader.provenance(), &layout);
    begun.map_err(|error| {
        // Only a reference can be wrong here.
        let reference = args.reference.as_deref().unwrap_or(path);
        Fault::new(Exit::Data, format!("{}: {error}", path_text(reference)))
    })?;
    let mut first = None;
    while let Some(batch) = reader.next_batch()? {
        check_stop(stop)?;
        let columns = layout.columns.iter();
        let columns = columns.map(|column| Vectors::new(&batch[column.to_string().as_str()]));
        let columns: Vec<Vectors> = columns.collect();
        for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
            first.get_or_insert(row.ordinal);
            let vectors: Vec<&[f32]> = columns.iter().map(|column| column.row(place)).collect();
            validator.add_row(&row, &vectors);
        }
    }
    Ok((InputFile::from_rows(&name, reader.digest()), first))
}

fn check_stop(stop: &Stop) -> Result<(), StoreError> {
    if stop.requested() {
        Err(StoreError::Stopped)
    } else {
        Ok(())
    }
}

/// Logs one line for each check that failed, and a summary.
fn log_verdict(verdict: &Verdict) {
    for check in verdict.failed() {
        error!("{check}");
    }
    if !verdict.not_compared.is_empty() {
        warn!(
            "reference: not compared: {}; only columns of one vector a row are compared, if the reference has them",
            verdict.not_compared.join(", ")
        );
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
