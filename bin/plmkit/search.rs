//! `plmkit search`.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Arg;
use clap::builder::TypedValueParser;
use plmkit_cli::{Common, Exit, Fault, Given, NamedPath, Stop, file, print, variant};
use plmkit_contract::{DEFAULT_BATCH_TOKENS, MANIFEST_FILE, Manifest, REJECTS_FILE, WINDOWS};
use plmkit_dataset::{Dataset, dataset_folder};
use plmkit_esm2::Device;
use plmkit_hub::{ModelId, Settings, resolve};
use plmkit_kit::{Quoted, is_stream, path_text, plural};
use plmkit_programs::fasta_shard;
use plmkit_programs::gpu_embed::{self, Request, Session, ShardFiles, prepare};
use plmkit_programs::query_embeddings::{HitsArgs, earlier_hits, format_of_table, open, search};
use plmkit_sequence::{OF_RESIDUES, residue_difference};
use plmkit_store::{
    AtomicFile, StoreError, TableFormat, open_input, read_input, read_rejects, read_sealed,
};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::computer::{answer_aside, temporary_folder, warn_of_rejects};
use crate::model;
use crate::params::Params;

/// Find the proteins of results that are nearest to those of a FASTA
///
/// Embeds the queries as the results were made: cut by the same rules, with the same model, layer, pooling and types. Compares them with
/// all proteins of the results, exactly, and writes a line for each hit, the nearest first. Leaves nothing else. The hits are those of
/// a run of plmkit on the queries and of query-embeddings neighbours.
///
/// If the FASTA is that of a sample of the results, no protein is a hit of itself; of combined results, only with --no-self.
///
/// Exit codes: 0; 1 if a query has no vector and so no hits, which a warning names; 65 if the results are of several models, or
/// --model is another; 66 if the model is not found.
#[derive(Debug, clap::Args)]
#[command(mut_args(hide_if_of_records))]
pub(crate) struct SearchArgs {
    /// FASTA of the queries, plain or compressed by gzip, bgzip or zstd; - is standard input
    #[arg(value_name = "QUERIES.fasta", value_parser = crate::args::input())]
    queries: PathBuf,

    /// Results to search, all of one model: folders of a run or of a sample, dataset.json, or embeddings files
    #[arg(value_name = "RESULTS", required = true, value_parser = file().map(dataset_folder))]
    results: Vec<PathBuf>,

    /// Table to write [default: TSV on standard output]
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: Option<PathBuf>,

    /// Format of the table [default: by the extension of the file; without one, tsv]
    #[arg(long, value_name = "FORMAT", value_parser = variant::<TableFormat>())]
    format: Option<TableFormat>,

    #[command(flatten)]
    hits: HitsArgs,

    /// Leave out proteins whose sequence, as it was embedded, is that of the query
    #[arg(long)]
    no_self: bool,

    /// Folder or weight file of the model that made the results, if it is not where these say
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Fetch the model from the Hub if it is not in the local cache
    #[arg(long)]
    download: bool,

    /// Device that embeds the queries: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,

    /// Options of `fasta-shard` for the queries, in place of those of the results.
    #[command(flatten)]
    records: Given<fasta_shard::RecordOptions>,

    #[command(flatten)]
    long: Given<fasta_shard::LongOptions>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Leaves an option of records to `--help`.
pub(crate) fn hide_if_of_records(option: Arg) -> Arg {
    let is_of_records = matches!(
        option.get_help_heading(),
        Some("Translation" | "Long proteins" | "Records")
    );
    option.hide_short_help(is_of_records)
}

/// The options of `fasta-shard` that decide which residues of a record are embedded, and which records are wrong.
const OF_RECORDS: &str = "duplicate_ids invalid long_policy max_residues overlap";

/// A model, and its options.
type Model = (Session, gpu_embed::Args);

impl SearchArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let out = self.out.as_deref().unwrap_or(Path::new("hits.tsv"));
        let format = format_of_table(self.format, out, TableFormat::Tsv)?;
        let mut config = self.hits.config(out.to_owned(), format)?;
        let outputs: Vec<NamedPath> = self.out.iter().map(|out| ("--out", &**out)).collect();
        let is_file = !is_stream(&self.queries);
        let _ = is_file.then(|| open_input(&self.queries)).transpose()?;
        let (inputs, mut samples) = ([("the queries", &*self.queries)], Vec::new());
        for results in &self.results {
            let opened = open(results, &inputs, &outputs, &[earlier_hits(format)], stop)?;
            samples.extend(opened.into_samples());
        }
        let targets = Dataset::from_samples(&self.results[0], samples)?;
        if let Some(out) = &self.out {
            if out.exists() && !config.force {
                let path = out.clone();
                return Err(StoreError::Written { path }.into());
            }
            // Nothing is computed for a folder that is missing.
            drop(AtomicFile::create(out)?);
        }
        if let copies @ 1.. = targets.copies() {
            let (results, copies) = (path_text(&self.results[0]), plural(copies, "record"));
            let why = "whose residues another has, as aliases.parquet and known.parquet list";
            tracing::warn!("{results}: no hits of {copies}, {why}");
        }
        let place = targets.column_index(config.column.as_deref())?;
        let column = targets.layout().columns[place].to_string();
        // A signal may end the process at once while a driver is asked, so there is no folder yet.
        let model = self.open_model(&targets, &column, stop)?;
        let folder = temporary_folder()?;
        let exit = self.embed(model, &targets, folder.path(), stop)?;
        let queries = Dataset::open(folder.path(), Err, stop)?;
        config.out = self.out.clone().unwrap_or(folder.path().join("hits"));
        (config.column, config.no_self, config.is_fresh) = (Some(column), self.no_self, true);
        let (mode, quiet) = (self.hits.progress, self.common.quiet);
        let hits = search(&config, [&queries, &targets], mode, quiet, stop)?;
        if self.out.is_none() {
            print(read_input(&config.out)?)?;
        }
        let out = self.out.unwrap_or("standard output".into());
        tracing::info!("{}: {}", path_text(&out), plural(hits, "hit"));
        Ok(exit)
    }

    /// Opens the model that made a column of the results, as their digest tells.
    fn open_model(&self, targets: &Dataset, column: &str, stop: &Stop) -> Result<Model, Fault> {
        let made_by = &targets.parts[0].provenance;
        let option = |name, default| made_by.text_option(name).unwrap_or(default);
        let (pool, layer) = column.split_once('_').unwrap_or_default();
        let (store, how) = (targets.layout().dtype, option(WINDOWS, "stitch"));
        let words = format!("--pool={pool} --layers={layer} --store-dtype={store} --windows={how}");
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        words.push(format!("--device={}", self.device));
        words.extend(self.hits.threads.map(|count| format!("--threads={count}")));
        let name = made_by.model.clone();
        let name = name.map_or_else(String::new, |model| match model.revision {
            Some(commit) => format!("{}@{commit}", model.name),
            None => model.name,
        });
        let (results, digest) = (path_text(&self.results[0]), option("model", ""));
        let made_by = format!("the model of {results} is {} ({digest})", Quoted(&name));
        let found = || self.find(&name, digest, stop);
        let Some(model) = self.model.clone().or_else(found) else {
            let fetch = format!("; plmkit fetch {name} or --download fetches it");
            let fetch = ModelId::parse(&name).map_or("", |_| &fetch);
            let what = format!("{made_by}, which is not found: expected --model with its path");
            return Err(Fault::new(Exit::NoInput, what + fetch));
        };
        let dtype = option("dtype", "f32");
        let in_type = |dtype: &str| -> Result<Given<gpu_embed::Options>, Fault> {
            let dtype = format!("--dtype={dtype}");
            let mut options: Given<gpu_embed::Options> =
                Given::parse(words.iter().chain([&dtype]))?;
            options.computation.progress = self.hits.progress;
            Ok(options)
        };
        let (path, common) = (Path::new(&model).to_owned(), self.common.clone());
        let mut args = gpu_embed::Args::new(path, in_type(dtype)?, common);
        args.download = self.download;
        let mut opened = model::open(&args, true, stop);
        if opened.as_ref().is_err_and(|it| it.exit() == Exit::Usage) && dtype != "f32" {
            let what = "which this device does not compute: the queries are computed in f32";
            tracing::warn!("{results}: made in {dtype}, {what}");
            args.options = in_type("f32")?;
            opened = model::open(&args, true, stop);
        }
        let told = |it: Fault| {
            // A model without that layer is another one.
            let is_other = it.exit() == Exit::Usage && self.model.is_some();
            let exit = if is_other { Exit::Data } else { it.exit() };
            Fault::new(exit, format!("{}; {made_by}", it.message()))
        };
        let mut session = opened.map_err(told)?.ok_or(StoreError::Stopped)?;
        let found = &session.engine().info().checkpoint.digest;
        if found != digest {
            let what = format!("{model}: another model, with the digest {found}; {made_by}");
            return Err(Fault::new(Exit::Data, what));
        }
        session.pin_device_and_type();
        Ok((session, args))
    }

    /// Finds the model by its id on the Hub, or where a run had it that made the results.
    fn find(&self, name: &str, digest: &str, stop: &Stop) -> Option<String> {
        let is_cached = || resolve(name.as_ref(), &Settings::from_env(), None, stop).is_ok();
        if ModelId::parse(name).is_some() && (self.download || is_cached()) {
            return Some(name.to_owned());
        }
        let folders = self.results.iter().flat_map(|path| path.canonicalize());
        let folders: Vec<_> = folders.collect();
        let folders = folders.iter().flat_map(|path| path.ancestors().take(4));
        let mut runs = folders.filter_map(Params::read);
        let is_here = |run: &Params| run.weights == digest && Path::new(&run.model).exists();
        runs.find(is_here).map(|run| run.model)
    }

    /// Embeds the queries in a folder, cut as the results were unless options say otherwise. Tells what became of them.
    fn embed(
        &self,
        model: Model,
        targets: &Dataset,
        to: &Path,
        stop: &Stop,
    ) -> Result<Exit, Fault> {
        let (mut session, args) = model;
        let mut words = [&self.records.words[..], &self.long.words].concat();
        let has = |option: &str| self.records.has(option) || self.long.has(option);
        // An overlap is of one size of windows.
        let recuts = has("--long-policy") || has("--max-residues");
        let samples = targets.samples().iter();
        let mut cuts = samples.filter_map(|sample| sample.listed.as_ref()?.shard_options.as_ref());
        let cut_by = cuts.next();
        if cut_by.is_some_and(|first| cuts.any(|cut| residue_difference(first, cut).is_some())) {
            let results = path_text(&self.results[0]);
            tracing::warn!(
                "{results}: samples were cut in different ways; queries are cut as the first one was, where no option says otherwise"
            );
        }
        for (name, value) in cut_by.into_iter().flatten() {
            let (word, value) = (format!("--{}", name.replace('_', "-")), value.to_string());
            if OF_RECORDS.contains(&**name) && value != "null" {
                let own = format!("{word}={}", value.trim_matches('"'));
                if !has(&word) {
                    let is_kept = name != "overlap" || !recuts;
                    words.extend(is_kept.then(|| own.into()));
                } else if OF_RESIDUES.contains(&&**name)
                    && !words.iter().any(|given| *given == *own)
                {
                    tracing::warn!(
                        "the results were cut with {own}, the queries are cut otherwise: the same protein may have another vector"
                    );
                }
            }
        }
        // Samples that were combined have no such options.
        let windows = targets.parts[0].provenance.text_option(WINDOWS);
        let windows = windows.filter(|_| cut_by.is_none());
        let windows = windows.filter(|_| !has("--long-policy"));
        words.extend(windows.map(|_| "--long-policy=window".into()));
        let at = |name: &str| to.join(name);
        let (options, common) = (Given::parse(&words)?, self.common.clone());
        let mut cut = fasta_shard::Args::new(at("shards"), options, None, common);
        (cut.inputs, cut.shards) = (vec![self.queries.clone()], Some(NonZero::<u32>::MIN));
        let (queries, description) = (
            path_text(&self.queries),
            targets.layout().labels.description,
        );
        // Its messages are about files that nobody sees.
        let cut = with_default(NoSubscriber::new(), || {
            prepare(cut, DEFAULT_BATCH_TOKENS.get(), description, stop)
        });
        StoreError::check(stop)?;
        cut?;
        let manifest: Manifest = read_sealed(&at("shards").join(MANIFEST_FILE))?;
        let embeddings = at("embeddings");
        std::fs::create_dir(&embeddings).map_err(StoreError::cannot_create(&embeddings))?;
        let request = Request::Embed(Box::new(ShardFiles {
            batches: at("shards"),
            out: embeddings.join("queries.parquet"),
            rejects: at("rejects.csv"),
            events: at("events.jsonl"),
            samples: at("samples.csv"),
            checkpoint_dir: None,
            force: false,
        }));
        let tokens = manifest.tokens;
        answer_aside(&args, None, &mut session, &request, tokens, stop)?;
        if let Some(count @ 1..) = manifest.changed.get("proteins_truncated") {
            let (count, longest) = (plural(*count, "protein"), &manifest.options["max_residues"]);
            tracing::warn!("{queries}: {count} truncated to {longest} residues");
        }
        let mut rejected = read_rejects(&at("shards").join(REJECTS_FILE))?.lines;
        if at("rejects.csv").exists() {
            rejected.extend(read_rejects(&at("rejects.csv"))?.lines);
        }
        let what = "without a vector, and so without hits";
        Ok(warn_of_rejects(&queries, &rejected, what))
    }
}
