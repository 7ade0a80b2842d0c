//! `pipeline_info/params.json`: what a folder of results was made with.

use std::collections::BTreeSet;
use std::fs;
use std::path::{self, Path, PathBuf};

use plmkit_cli::{Exit, Fault, Given};
use plmkit_contract::{DESCRIPTION, Outputs, Provenance};
use plmkit_kit::path_text;
use plmkit_programs::gpu_embed::{self, Session};
use plmkit_programs::pack_batches;
use plmkit_store::{EmbeddingsReader, files_in, read_input};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{Args, Stage};
use crate::layout::{is_shard_file, params_file};
use crate::programs::Programs;
use crate::samples::Sample;

/// The parameters of a run, by the names of all workflows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Params {
    pub(crate) samples: String,
    pub(crate) outdir: String,
    pub(crate) model: String,
    pub(crate) max_shard_tokens: Value,
    #[serde(default)]
    pub(crate) fasta_shard: String,
    #[serde(default)]
    pub(crate) pack_batches: String,
    #[serde(default)]
    pub(crate) gpu_embed: String,
    #[serde(default)]
    pub(crate) validate_embeddings: String,
    /// The digest of the model.
    #[serde(default)]
    pub(crate) weights: String,
    #[serde(default)]
    pub(crate) allow_empty: bool,
}

/// Compares the embeddings in the folder with what this run would make. Returns whether they are of other settings, and to be made
/// again. How records are cut is in the manifest of each sample, which fasta-shard compares.
pub(crate) fn replaces_embeddings(
    out: &Path,
    programs: &Programs,
    session: Option<&Session>,
    samples: &[Sample],
    finished: &BTreeSet<String>,
    stage: Option<Stage>,
    force: bool,
) -> Result<bool, Fault> {
    let refused = |what: String| Err(Fault::of_path(Exit::CannotCreate, out, what));
    if matches!(stage, Some(Stage::Embed | Stage::Finish)) {
        let Some(earlier) = Params::read(out) else {
            let what = "no run began here: expected a folder of --stage prepare";
            return Err(Fault::of_path(Exit::NoInput, out, what));
        };
        return match earlier.difference(programs, session) {
            None => Ok(false),
            Some(other) => refused(format!(
                "was prepared with {other}; expected the same, or --stage prepare again, with --force if shards are embedded"
            )),
        };
    }
    let (mut other, mut of_others) = (None, None);
    let (mut has_kept, mut kept) = (false, None);
    for path in embeddings(out) {
        let Some(session) = session else { break };
        let is_asked = samples
            .iter()
            .any(|sample| path.starts_with(out.join(&sample.name)));
        let mut finished = finished.iter();
        if kept.is_some() && finished.any(|name| path.starts_with(out.join(name))) {
            continue;
        }
        // What cannot be read, the validation tells.
        let Some(found) = provenance(&path) else {
            has_kept = true;
            continue;
        };
        let mixed = || kept.as_ref().and_then(|kept| mixed_with(&found, kept));
        let differs = difference(&found, programs, session);
        match differs.or_else(|| mixed().filter(|_| is_asked)) {
            Some(_) if force => return Ok(true),
            Some(difference) if is_asked => other = other.or(Some(difference)),
            Some(difference) => of_others = of_others.or(Some(difference)),
            None => {
                has_kept = true;
                kept = kept.or(Some(found));
            }
        }
    }
    // Beside embeddings of this run, those of another sample are told at the end.
    let other = other.or(of_others.filter(|_| !has_kept));
    other.map_or(Ok(false), |difference| {
            refused(format!(
                "has embeddings of other settings ({difference}); expected another folder, or --force, which replaces them"
            ))
        })
}
/// How two embeddings files were computed differently, where neither device nor type is given.
fn mixed_with(found: &Provenance, kept: &Provenance) -> Option<String> {
    let [was, is] = [kept, found].map(made_on);
    let mut pairs = ["device", "dtype"].into_iter().zip(was.iter().zip(is));
    let (name, (was, is)) = pairs.find(|(_, (was, is))| **was != *is)?;
    Some(format!("{name} is \"{was}\" and \"{is}\""))
}

/// The kind of device that computed embeddings, and the type.
fn made_on(made_by: &Provenance) -> [&str; 2] {
    ["device", "dtype"].map(|name| made_by.text_option(name).unwrap_or_default())
}

/// What decides the values of embeddings, of the options alone.
fn deciding(options: &gpu_embed::Options) -> impl PartialEq {
    let outputs = Outputs::from(options.outputs.clone());
    let how = (options.computation.device, options.computation.dtype);
    let rows = (options.windows, options.scores_positions.clone());
    (outputs, how, rows, options.store_dtype)
}

impl Params {
    pub(crate) fn new(args: &Args, session: &Session) -> Self {
        let inputs = args.inputs.iter();
        // A search finds it from any folder.
        let path = Some(Path::new(&args.model)).filter(|path| path.exists());
        let path = path.and_then(|path| path::absolute(path).ok());
        let model = path.map_or_else(|| args.model.clone(), |path| path_text(&path));
        let inputs = inputs.map(|path| path_text(path));
        Self {
            samples: inputs.collect::<Vec<_>>().join(" "),
            outdir: path_text(&args.out),
            model,
            max_shard_tokens: args.max_shard_tokens.into(),
            fasta_shard: args.fasta_shard.line(),
            pack_batches: args.pack_batches.line(),
            gpu_embed: args.gpu_embed.line(),
            validate_embeddings: args.validate_embeddings.line(),
            weights: session.engine().info().checkpoint.digest.clone(),
            allow_empty: args.allow_empty,
        }
    }

    /// Reads the parameters of the last run; none if they are missing or damaged.
    pub(crate) fn read(out: &Path) -> Option<Self> {
        serde_json::from_slice(&read_input(&params_file(out)).ok()?).ok()
    }

    /// The first difference between the parameters that a folder was prepared with and those of a stage that goes on.
    fn difference(&self, programs: &Programs, session: Option<&Session>) -> Option<String> {
        let model = session.map(|session| &session.engine().info().checkpoint.digest);
        if model.is_some_and(|digest| !self.weights.is_empty() && *digest != self.weights) {
            let (was, now) = (&self.model, programs.gpu_embed.model.display());
            return Some(format!("the model '{was}', which is now '{now}'"));
        }
        let own = &programs.gpu_embed.options;
        let earlier = again(&self.gpu_embed);
        if earlier.is_none_or(|earlier| deciding(&earlier) != deciding(own)) {
            let now = own.line();
            return Some(format!("'{}', which is now '{now}'", self.gpu_embed));
        }
        let packing =
            |options: &pack_batches::Options| (options.description, options.max_batch_tokens);
        let (own, earlier) = (&programs.pack_batches.options, again(&self.pack_batches));
        if earlier.is_none_or(|earlier| packing(&earlier) != packing(own)) {
            let (was, now) = (&self.pack_batches, own.line());
            return Some(format!("'{was}', which is now '{now}'"));
        }
        None
    }
}

/// Parses options as an earlier run wrote them.
fn again<T: clap::Args>(text: &str) -> Option<Given<T>> {
    Given::parse(shlex::split(text)?).ok()
}

/// What embeddings say of themselves in their footer; `None` for a file that cannot be read.
pub(crate) fn provenance(path: &Path) -> Option<Provenance> {
    let found = EmbeddingsReader::open(path).ok()?;
    Some(found.provenance().clone())
}

/// What differs between embeddings and those that this run would make.
pub(crate) fn difference(
    found: &Provenance,
    programs: &Programs,
    session: &Session,
) -> Option<String> {
    let has_description = found.options.contains_key(DESCRIPTION);
    if has_description != programs.pack_batches.options.description {
        return Some("--description is another".to_owned());
    }
    let dtype = programs
        .gpu_embed
        .options
        .computation
        .dtype
        .map(|dtype| dtype.to_string());
    let asked = [("device", programs.asked_device()), ("dtype", dtype)];
    // A stage that computes nothing may run where neither is there.
    let mut other = asked.into_iter().filter_map(|(name, asked)| {
        let (was, is) = (found.text_option(name)?, asked?);
        (was != is).then(|| format!("{name} was \"{was}\" and is now \"{is}\""))
    });
    session.difference(found).or_else(|| other.next())
}

/// What keeps embeddings of this run from those at `path`, where no device and type are given: they are of others.
pub(crate) fn mixture(path: &Path, found: &Provenance, session: &Session) -> Option<String> {
    let info = session.engine().info();
    let [was_device, was_dtype] = made_on(found);
    let (path, device, dtype) = (path_text(path), info.device_kind(), info.dtype.to_string());
    ([was_device, was_dtype] != [device, &*dtype]).then(|| {
        format!(
            "{path}: made on {was_device} in {was_dtype}, and what is missing would be made on {device} in {dtype}; expected --device and --dtype of the one or the other, or --force, which replaces all"
        )
    })
}

/// The samples in a folder of results that have embeddings.
pub(crate) fn samples_with_embeddings(out: &Path) -> BTreeSet<String> {
    // A combined dataset has parts, and is no sample.
    let of_shards = embeddings(out).filter(|path| is_shard_file(path));
    let names = of_shards.filter_map(|path| {
        let sample = path.parent()?.parent()?;
        Some(sample.file_name()?.to_string_lossy().into_owned())
    });
    names.collect()
}

/// The embeddings of all samples in a folder of results.
pub(crate) fn embeddings(out: &Path) -> impl Iterator<Item = PathBuf> {
    let samples = fs::read_dir(out).into_iter().flatten().flatten();
    samples.flat_map(|sample| {
        let folder = sample.path().join("embeddings");
        files_in(&folder, &["parquet"]).unwrap_or_default()
    })
}
