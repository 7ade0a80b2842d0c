//! `pipeline_info/params.json`: what a folder of results was made with.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, Stop, files_in};
use plmkit_contract::path_text;
use plmkit_store::{StoreError, write_json};
use serde::{Deserialize, Serialize};

use crate::model::Model;
use crate::options::{AllOptions, ProgramOptions};

/// The parameters of a run, by the names of all workflows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Params {
    pub(crate) samples: String,
    pub(crate) outdir: String,
    pub(crate) model: String,
    pub(crate) max_shard_tokens: u64,
    #[serde(default)]
    pub(crate) fasta_shard: String,
    #[serde(default)]
    pub(crate) pack_batches: String,
    #[serde(default)]
    pub(crate) gpu_embed: String,
    #[serde(default)]
    pub(crate) validate_embeddings: String,
    #[serde(default)]
    pub(crate) weights: String,
    #[serde(default)]
    pub(crate) allow_empty: bool,
}

/// What the parameters of an earlier run say about the embeddings in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// They are those of this run, or there are none.
    Same,
    /// No file says how they were made: gpu-embed looks at each.
    Unknown,
    /// They are of other settings, and to be made again.
    Replaced,
}

impl Params {
    /// The file in a folder of results.
    pub(crate) fn file(outdir: &Path) -> PathBuf {
        outdir.join("pipeline_info/params.json")
    }

    /// Reads the parameters of the last run; none if they are missing or damaged.
    pub(crate) fn read(outdir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::file(outdir)).ok()?).ok()
    }

    /// Compares with the run that made the embeddings of the folder, if it has some.
    ///
    /// How records are cut is in the manifest of each sample, which fasta-shard compares.
    pub(crate) fn compare(
        outdir: &Path,
        options: &AllOptions,
        model: &Model,
        (force, stop): (bool, &Stop),
    ) -> Result<Existing, Fault> {
        let Some(first) = embeddings(outdir).next() else {
            return Ok(Existing::Same);
        };
        let Some(earlier) = Self::read(outdir) else {
            return Ok(Existing::Unknown);
        };
        let other = match (earlier.other_options(options), earlier.other_model(model)) {
            (Some(other), _) => other,
            // The same weights may have another path, or be a copy.
            (None, Some(other)) if !model.made(&first, stop)? => other,
            (None, _) => return Ok(Existing::Same),
        };
        if force {
            return Ok(Existing::Replaced);
        }
        let outdir = path_text(outdir);
        Err(Fault::new(
            Exit::CannotCreate,
            format!(
                "{outdir}: has embeddings of {other}; expected another folder, or --force, which replaces them"
            ),
        ))
    }

    /// The options that decide the values of embeddings and differ, if any do.
    fn other_options(&self, options: &AllOptions) -> Option<String> {
        for (name, was, now) in [
            ("gpu-embed", &self.gpu_embed, &options.gpu_embed),
            ("pack-batches", &self.pack_batches, &options.pack_batches),
        ] {
            let known = ProgramOptions::parse(was).unwrap_or_default();
            if known.canonical() != now.canonical() {
                let [was, now] = [&known, now].map(ProgramOptions::deciding);
                return Some(format!("{name} '{was}', which is now '{now}'"));
            }
        }
        None
    }

    /// The model, if it seems to be another: by its name, or by its files.
    fn other_model(&self, model: &Model) -> Option<String> {
        if !model.is(&self.model) {
            let (was, now) = (&self.model, &model.name);
            return Some(format!("model '{was}', which is now '{now}'"));
        }
        // A model that was still to be fetched had none yet.
        let known = !self.weights.is_empty() && !model.weights.is_empty();
        (known && self.weights != model.weights).then(|| "other weights".to_owned())
    }

    /// Writes the parameters of this run. Embeddings that they may not be those of are marked before.
    pub(crate) fn write(&self, outdir: &Path, existing: Existing) -> Result<(), Fault> {
        for path in embeddings(outdir).filter(|_| existing != Existing::Same) {
            let mark = mark_of(&path);
            File::create(&mark).map_err(StoreError::cannot_create(&mark))?;
        }
        Ok(write_json(&Self::file(outdir), self)?)
    }
}

/// The file beside embeddings which says that gpu-embed has still to compare or replace them: they may be of other parameters.
pub(crate) fn mark_of(embeddings: &Path) -> PathBuf {
    let name = embeddings.file_name().unwrap_or_default();
    embeddings.with_file_name(format!(".{}.unchecked", name.to_string_lossy()))
}

/// The samples in a folder of results that have embeddings.
pub(crate) fn samples_with_embeddings(outdir: &Path) -> BTreeSet<String> {
    let names = embeddings(outdir).filter_map(|path| {
        let sample = path.parent()?.parent()?;
        Some(sample.file_name()?.to_string_lossy().into_owned())
    });
    names.collect()
}

/// The embeddings of all samples in a folder of results.
pub(crate) fn embeddings(outdir: &Path) -> impl Iterator<Item = PathBuf> {
    let samples = fs::read_dir(outdir).into_iter().flatten().flatten();
    samples.flat_map(|sample| {
        files_in(&sample.path().join("embeddings"), &["parquet"]).unwrap_or_default()
    })
}
