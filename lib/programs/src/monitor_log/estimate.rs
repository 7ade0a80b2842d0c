//! `monitor-log estimate`.

use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, print};
use plmkit_contract::{Dtype, Manifest, ModelShape, Outputs, Scores};
use plmkit_esm2::read_config;
use plmkit_estimate::{
    Estimate, Lengths, Measured, PEAK_SHARE, Plan, shares_of_peaks, tensor_memory,
};
use plmkit_kit::path_text;
use plmkit_logs::event::EventLines;
use plmkit_store::{FileKind, ShardReader, StoreError, read_sealed, write_json};
use plmkit_telemetry::devices::DEFAULT_DEVICES;
use plmkit_telemetry::report::Runs;

use super::args::EstimateArgs;
use super::report::{check, logs_of, read_events};

/// Files of a shard that the workflows leave: shard, embeddings, events and samples. A list of rejects is rare.
const FILES_OF_SHARD: u64 = 4;
/// Files of a sample: manifest, rejects, dataset, and three reports.
const FILES_OF_SAMPLE: u64 = 6;
/// Files of a run: summary, page, versions, parameters, the batch size.
const FILES_OF_RUN: u64 = 5;

/// Prints the estimate, and writes it as JSON.
///
/// # Errors
/// See [`estimate_of`], or the JSON cannot be written.
pub fn estimate(args: EstimateArgs) -> Result<Exit, Fault> {
    let report = args.report.clone();
    let estimate = estimate_of(args)?;
    if let Some(path) = &report {
        write_json(path, &estimate)?;
    }
    if report.as_deref() != Some(Path::new("-")) {
        print(estimate.to_string())?;
    }
    Ok(Exit::Done)
}

/// Estimates a run.
///
/// # Errors
/// A shard, the model or a log of runs cannot be read.
pub fn estimate_of(args: EstimateArgs) -> Result<Estimate, Fault> {
    let logs = logs_of::<EventLines>(&args.measured, "jsonl", true)?;
    check_paths(&args, &logs)?;
    let shape = shape(&args.model)?;
    let outputs = Outputs::from(args.outputs);
    let columns = outputs.columns(shape.layers as usize)?;
    let mut files = FILES_OF_RUN + FILES_OF_SAMPLE * args.uncut.len() as u64;
    let mut shards = args.uncut.concat();
    for path in &args.shards {
        files += FILES_OF_SAMPLE + read_shards(path, &mut shards)?;
    }
    files += FILES_OF_SHARD * shards.len() as u64;
    if outputs.scores == Some(Scores::Masked) {
        shards = shards
            .into_iter()
            .map(Lengths::with_masked_copies)
            .collect();
    }
    let mut measured = Measured::default();
    measured.left.clone_from(&shards);
    for path in &logs {
        let mut runs = Runs::default();
        read_events(path, &mut runs)?;
        let runs = runs.finish();
        let wrong = |what: &str| StoreError::malformed(path, what);
        if runs.is_empty() {
            return Err(wrong("expected run events, found none").into());
        }
        for run in &runs {
            let added = measured.add(run, &shape);
            added.map_err(|what| wrong(&what))?;
        }
    }
    let percent = 100.0 * PEAK_SHARE;
    let (rate, rates) = if let Some(rates) = args.rates {
        let rate = format!("measured rates, or {percent} % of a GPU's peak");
        (rate, rates)
    } else if logs.is_empty() {
        let rate = match args.dtype {
            Dtype::Int8 => "unknown, as int8 is computed on CPUs, which only plmkit estimate measures".to_owned(),
            Dtype::Fp8 => "unknown, as no GPU was measured in fp8; monitor-log estimate --measured takes the rate of runs".to_owned(),
            dtype => format!("{percent} % of the peak in {dtype}"),
        };
        (rate, shares_of_peaks(args.dtype, DEFAULT_DEVICES))
    } else {
        let rate = measured.flops / measured.device_s;
        let tera = rate / 1e12;
        let devices: Vec<String> = measured.devices.into_iter().collect();
        let device = (devices.join(", "), rate);
        (format!("the measured {tera:.3} TFLOP/s"), vec![device])
    };
    let (tensor_memory_mib, tensor_memory) = tensor_memory(&shape, args.dtype);
    let plan = Plan {
        model: path_text(&args.model),
        shape,
        columns,
        store_dtype: args.store_dtype,
        files,
        tensor_memory_mib,
        tensor_memory,
        gpus: args.gpus,
        rate,
    };
    Ok(Estimate::new(plan, &shards, &measured.left, rates))
}

/// Checks that the report replaces no input. It may be beside what it is about.
fn check_paths(args: &EstimateArgs, measured: &[PathBuf]) -> Result<(), Fault> {
    let manifests = args.shards.iter();
    let manifests = manifests.map(|path| in_folder_of(path, "manifest.json"));
    let model = [args.model.clone(), in_folder_of(&args.model, "config.json")];
    let read: Vec<PathBuf> = manifests.chain(model).collect();
    let inputs = [&args.shards, measured, &read].map(|paths| ("an input", paths));
    check(&inputs, &[("--report", args.report.as_ref())])
}

/// Returns the path of a file in this folder, or beside this file.
fn in_folder_of(path: &Path, name: &str) -> PathBuf {
    if path.is_file() {
        path.with_file_name(name)
    } else {
        path.join(name)
    }
}

/// Returns the shape of a model: a folder, a weight file, or a published model.
///
/// # Errors
/// It is none of these.
pub fn shape(model: &Path) -> Result<ModelShape, Fault> {
    if model.exists() {
        return Ok(read_config(model)?.shape());
    }
    let published = model.to_str().and_then(ModelShape::published);
    published.ok_or_else(|| {
        let ids: Vec<&str> = ModelShape::published_ids().collect();
        let ids = ids.join(", ");
        let what = format!("expected a folder with config.json, or one of {ids}");
        Fault::of_path(Exit::NoInput, model, what)
    })
}

/// Reads a shard, or the shards of a manifest or of a folder with one. Returns how many lists of aliases and of known records there are.
fn read_shards(path: &Path, shards: &mut Vec<Lengths>) -> Result<u64, Fault> {
    if path.is_file() && path.extension() != Some("json".as_ref()) {
        shards.push(read_shard(path)?.1);
        return Ok(0);
    }
    let manifest: Manifest = read_sealed(&in_folder_of(path, "manifest.json"))?;
    for listed in &manifest.shards {
        let path = in_folder_of(path, &listed.file);
        let (digest, shard) = read_shard(&path)?;
        let found = (&*digest, shard.sequences, shard.tokens);
        if found != (&*listed.digest, listed.rows, listed.tokens) {
            let what = "is not the shard that its manifest lists";
            return Err(StoreError::malformed(&path, what).into());
        }
        shards.push(shard);
    }
    Ok(u64::from(manifest.aliases.is_some()) + u64::from(manifest.known.is_some()))
}

/// Reads the lengths of the rows of a shard, and their digest.
fn read_shard(path: &Path) -> Result<(String, Lengths), StoreError> {
    let of_input = |error: StoreError| error.of_input(FileKind::Shard);
    let mut shard = ShardReader::open(path).map_err(of_input)?;
    let mut lengths = Lengths::default();
    let read = shard.lengths(|ordinal, of, residues| lengths.add(ordinal, of, residues));
    read.map_err(of_input)?;
    Ok((shard.digest().to_string(), lengths))
}
