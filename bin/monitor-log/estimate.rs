//! `monitor-log estimate`.

use std::fs;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, keep_apart, keep_data, print};
use plmkit_contract::{
    ALIASES_FILE, KNOWN_FILE, Manifest, ModelShape, Outputs, ShardSummary, io_text, path_text,
    plural,
};
use plmkit_estimate::{Estimate, Lengths, Measured, Plan, Work, measured, table};
use plmkit_store::{FileKind, ShardReader, StoreError, open_input, read_sealed, write_json};
use plmkit_telemetry::report::{Report, Runs};
use serde_json::Value;
use tracing::warn;

use crate::args::EstimateArgs;
use crate::report::read_events;

/// Bytes of a row of a list of aliases or of known records, as encoded.
const LIST_ROW_BYTES: u64 = 21;

/// The most rows and tokens of a set of shards: what a number of JSON holds exactly.
const MAX_COUNT: u64 = 1 << 53;

/// The most bytes of a `config.json` and of a report.
const JSON_BYTES: u64 = 256 << 20;

/// Prints the estimate, and writes it as JSON.
pub(crate) fn estimate(args: EstimateArgs) -> Result<Exit, Fault> {
    check_paths(&args)?;
    let shape = shape(&args.model)?;
    let outputs = Outputs::from(args.outputs);
    let columns = outputs.columns(shape.layers as usize);
    let rates: Result<Vec<Vec<Measured>>, Fault> = args
        .measured
        .iter()
        .map(|path| rates(path, &shape))
        .collect();
    let plan = Plan {
        model: path_text(&args.model),
        shape,
        columns: columns.map_err(|error| Fault::usage(error.to_string()))?,
        store_dtype: args.store_dtype,
        dtype: args.dtype,
        mfu: args.mfu / 100.0,
        gpus: args.gpus,
    };
    let mut work = Work::new();
    for path in &args.shards {
        add(&mut work, path)?;
    }
    let estimate = Estimate::new(&plan, work, &rates?.concat(), &args.device)
        .map_err(|error| Fault::usage(error.to_string()))?;
    if let Some(path) = &args.report {
        write_json(path, &estimate)?;
    }
    if args.report.as_deref() != Some(Path::new("-")) {
        print(table(&estimate))?;
    }
    if !estimate.work.exact {
        warn!("some shards are not there: attention is estimated from the histogram of lengths");
    }
    let shards = estimate.work.shards.len() as u64;
    if u64::from(plan.gpus.get()) > shards {
        let found = plural(shards, "shard");
        warn!(
            "--gpus {}: {found} for them; smaller shards use all",
            plan.gpus
        );
    }
    Ok(Exit::Done)
}

fn check_paths(args: &EstimateArgs) -> Result<(), Fault> {
    let config = config_of(&args.model);
    let mut inputs: Vec<NamedPath> = vec![("the model", &args.model), ("the model", &config)];
    // All files of a set of shards.
    let sets = args.shards.iter().map(|path| match path {
        path if is_manifest(path) => path.with_file_name("."),
        path => path.clone(),
    });
    let files = sets
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let files: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    let shards = files.iter().chain(&args.shards);
    inputs.extend(shards.map(|path| ("the shards", &**path)));
    // A report may be beside what it is about.
    inputs.retain(|(_, path)| !path.is_dir());
    inputs.extend(args.measured.iter().map(|path| ("--measured", &**path)));
    let report = args.report.iter().map(|path| ("--report", &**path));
    let outputs: Vec<NamedPath> = report.collect();
    keep_apart(&inputs, &outputs)?;
    keep_data(&outputs)
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Returns the path of a model's `config.json`: in its folder, or beside its weight file.
fn config_of(model: &Path) -> PathBuf {
    if model.is_file() {
        model.with_file_name("config.json")
    } else {
        model.join("config.json")
    }
}

/// Returns the shape of a model: a folder with its `config.json`, a weight file beside one, or a published model.
fn shape(model: &Path) -> Result<ModelShape, Fault> {
    let config = config_of(model);
    if config.exists() {
        let json = read(&config)?;
        return ModelShape::from_json(&json)
            .map_err(|what| Fault::new(Exit::Data, format!("{}: {what}", path_text(&config))));
    }
    let published = model.to_str().and_then(ModelShape::published);
    published.ok_or_else(|| {
        let ids: Vec<&str> = ModelShape::published_ids().collect();
        let what = format!(
            "{}: expected a folder with config.json, or one of {}",
            path_text(model),
            ids.join(", ")
        );
        Fault::new(Exit::NoInput, what)
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = open_input(path)?.take(JSON_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| {
        Fault::new(
            Exit::Io,
            format!("{}: {}", path_text(path), io_text(&error)),
        )
    })?;
    Ok(bytes)
}

/// Returns the rates of a report, or of a log of run events.
fn rates(path: &Path, shape: &ModelShape) -> Result<Vec<Measured>, Fault> {
    let bad = |what: String| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
    let report = if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        let mut runs = Runs::default();
        read_events(path, &mut runs)?;
        let report = Report::new(Some(runs), None, None);
        serde_json::to_value(report).map_err(|error| bad(error.to_string()))?
    } else {
        let report = serde_json::from_slice::<Value>(&read(path)?);
        report.map_err(|error| bad(format!("not a report of monitor-log: {error}")))?
    };
    measured(&report, shape).map_err(bad)
}

/// Adds a shard, the shards of a folder with a manifest, or those of a manifest.
fn add(work: &mut Work, path: &Path) -> Result<(), Fault> {
    if !path.is_dir() && !is_manifest(path) {
        work.samples += 1;
        return add_shard(work, path);
    }
    let manifest = if is_manifest(path) {
        path.to_owned()
    } else {
        path.join("manifest.json")
    };
    let folder = manifest.parent().unwrap_or(Path::new("")).to_owned();
    let path = manifest;
    let manifest: Manifest = read_sealed(&path)?;
    check_manifest(&manifest)
        .map_err(|what| Fault::new(Exit::Data, format!("{}: {what}", path_text(&path))))?;
    work.samples += 1;
    let known = manifest.known.as_ref().map(|known| &known.list);
    for (name, list) in [
        (ALIASES_FILE, manifest.aliases.as_ref()),
        (KNOWN_FILE, known),
    ] {
        if let Some(list) = list {
            let found = fs::metadata(folder.join(name)).map(|found| found.len());
            work.add_list(found.unwrap_or(list.rows.saturating_mul(LIST_ROW_BYTES)));
        }
    }
    let shards = manifest.shards.iter().map(|shard| folder.join(&shard.file));
    let shards: Vec<PathBuf> = shards.collect();
    if shards.iter().any(|path| !path.exists()) {
        work.add_manifest(&manifest);
        return Ok(());
    }
    for (path, listed) in shards.iter().zip(&manifest.shards) {
        add_shard(work, path)?;
        let found = work
            .shards
            .last()
            .map(|shard| (shard.sequences, shard.tokens));
        if found != Some((listed.rows, listed.tokens)) {
            let what = format!(
                "{}: is not the shard that its manifest lists",
                path_text(path)
            );
            return Err(Fault::new(Exit::Data, what));
        }
    }
    Ok(())
}

/// Refuses counts that are not those of the shards, or that no set of shards has.
fn check_manifest(manifest: &Manifest) -> Result<(), String> {
    let sum = |count: fn(&ShardSummary) -> u64| {
        let counts = manifest.shards.iter().map(count);
        counts.fold(0, u64::saturating_add)
    };
    for (name, found, expected) in [
        ("rows", manifest.rows, sum(|shard| shard.rows)),
        ("residues", manifest.residues, sum(|shard| shard.residues)),
        ("tokens", manifest.tokens, sum(|shard| shard.tokens)),
    ] {
        if found != expected {
            return Err(format!(
                "{name}: expected {expected}, the sum over its shards, found {found}"
            ));
        }
        if found > MAX_COUNT {
            return Err(format!(
                "{name}: expected at most {MAX_COUNT}, found {found}"
            ));
        }
    }
    Ok(())
}

fn add_shard(work: &mut Work, path: &Path) -> Result<(), Fault> {
    let of_input = |error: StoreError| error.of_input(FileKind::Shard);
    let mut shard = ShardReader::open(path).map_err(of_input)?;
    let mut lengths = Lengths::default();
    let read = shard.lengths(|row| lengths.add(row.ordinal, row.length, row.residues));
    read.map_err(of_input)?;
    let bytes = fs::metadata(path).map_or(0, |found| found.len());
    work.add(lengths, bytes);
    Ok(())
}
