//! From files to a verdict.

use std::path::Path;

use plmkit_check::{Check, Examination, Outcome, ShardRows, Verdict, parts};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Labels, Manifest, path_text, plural};
use plmkit_store::{EmbeddingsReader, FileKind, read_rejects, read_sealed, read_shard, write_json};
use tracing::{error, info, warn};

use crate::args::{Args, Config};
use crate::batches::batches_digest;
use crate::dataset::Dataset;
use crate::keys::Keys;
use crate::mqc::table;
use crate::proteins::add_proteins;
use crate::reference::read_reference;
use crate::report::{Input, Inputs, Report};
use crate::vectors::Vectors;

/// Reads everything, reports, and says by the exit code whether a check failed.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let config = Config::try_from(args)?;
    // What is missing or foreign should show before hours of reading.
    let mut stitched = false;
    let mut labels = Labels::default();
    let mut origin = None;
    for path in &config.embeddings {
        let opened = EmbeddingsReader::open(path);
        let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        stitched |= opened.layout().stitched;
        labels = opened.layout().labels;
        // The check `origin` compares the others with the first.
        origin.get_or_insert_with(|| (opened.provenance().clone(), opened.layout().clone()));
    }

    let dataset = config.dataset.as_ref();
    let known = dataset.map(Dataset::parts).transpose()?;

    let mut examination = Examination::new();
    let mut rejects = Vec::new();
    for path in &config.rejects {
        let list = read_rejects(path).map_err(|error| error.of_input(FileKind::Rejects))?;
        let name = config.name(path);
        rejects.push(Input::new(
            name.clone(),
            list.lines.len() as u64,
            &list.digest,
        ));
        examination.rejects(&name, list);
    }
    let mut manifest = None;
    if let Some(path) = &config.manifest {
        let read: Manifest =
            read_sealed(path).map_err(|error| error.of_input(FileKind::Manifest))?;
        manifest = Some(read.clone());
        examination = examination.with_manifest(read);
    }
    if let Some(path) = &config.reference {
        examination = examination.with_reference(read_reference(path)?, config.min_cosine);
    }
    let mut shards = Vec::new();
    if !config.shards.is_empty() {
        let mut rows = ShardRows::default();
        for path in &config.shards {
            go_on(stop)?;
            shards.push(add_shard(
                &mut examination,
                &mut rows,
                (path, &config),
                (stitched, labels),
            )?);
        }
        examination = examination.with_shards(rows);
    }
    let mut embeddings = Vec::new();
    for path in &config.embeddings {
        embeddings.push(examine(&mut examination, path, &config, stop)?);
    }

    let mut verdict = examination.finish();
    let found: Vec<(String, String)> = embeddings.iter().map(Input::part).collect();
    verdict.checks.push(parts(known, &found));
    let inputs = Inputs {
        embeddings: &embeddings,
        shards: &shards,
        rejects: &rejects,
        manifest: manifest.as_ref(),
    };
    let report = Report::new(&config, origin.as_ref(), inputs, &verdict);
    if let Some(path) = &config.report {
        write_json(path, &report)?;
    }
    if let Some(path) = &config.mqc {
        write_json(path, &table(path, &report))?;
    }
    // Before the folder is written to: that of an archive may not be writable.
    tell(&verdict);
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

/// Adds the rows of a shard to those that are expected, and its origin to what is examined. Of `stitched` embeddings,
/// the rows of whole proteins are expected.
fn add_shard(
    examination: &mut Examination,
    rows: &mut ShardRows,
    (path, config): (&Path, &Config),
    (stitched, labels): (bool, Labels),
) -> Result<Input, Fault> {
    let table = read_shard(path).map_err(|error| error.of_input(FileKind::Shard))?;
    let batches = batches_digest(path, &table, labels)?;
    let name = config.name(path);
    examination.shard(&name, &table.provenance, table.digest, batches);
    if stitched {
        add_proteins(rows, &table);
    } else {
        for batch in &table.batches {
            for row in Keys::new(batch).rows() {
                rows.push(&row);
            }
        }
    }
    Ok(Input::of_rows(name, table.digest))
}

/// Shows all rows of an embeddings file to `examination`.
fn examine(
    examination: &mut Examination,
    path: &Path,
    config: &Config,
    stop: &Stop,
) -> Result<Input, Fault> {
    let mut reader = EmbeddingsReader::open(path)?;
    let layout = reader.layout().clone();
    examination
        .file(&config.name(path), reader.provenance(), &layout)
        .map_err(|error| {
            // Only a reference can be wrong here.
            let reference = config.reference.as_deref().unwrap_or(path);
            Fault::new(Exit::Data, format!("{}: {error}", path_text(reference)))
        })?;
    while let Some(batch) = reader.next_batch()? {
        go_on(stop)?;
        let vectors: Vec<Vectors> = layout
            .columns
            .iter()
            .map(|column| Vectors::new(&batch[column.to_string().as_str()]))
            .collect();
        for (place, row) in Keys::new(&batch).rows().enumerate() {
            let vectors: Vec<&[f32]> = vectors.iter().map(|column| column.row(place)).collect();
            examination.row(&row, &vectors);
        }
    }
    Ok(Input::of_rows(config.name(path), reader.digest()))
}

fn go_on(stop: &Stop) -> Result<(), Fault> {
    if stop.requested() {
        Err(Fault::new(Exit::Transient, "stopped"))
    } else {
        Ok(())
    }
}

/// One line for each check that failed, or one line for all.
fn tell(verdict: &Verdict) {
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
        let checks = verdict
            .checks
            .iter()
            .filter(|check| check.outcome == outcome);
        let names: Vec<&str> = checks.map(|check: &Check| check.name).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let truncated = match (verdict.truncated, verdict.residues_truncated) {
        (0, _) => String::new(),
        (rows, None) => format!(", {rows} truncated"),
        (rows, Some(lost)) => format!(", {rows} truncated by {}", plural(lost, "residue")),
    };
    info!(
        "{}{truncated}; passed: {}; failed: {}; skipped: {}",
        plural(verdict.rows, "row"),
        names(Outcome::Pass),
        names(Outcome::Fail),
        names(Outcome::Skipped)
    );
}
