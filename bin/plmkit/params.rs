//! `pipeline_info/params.json`: what a folder of results was made with.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{DATASET_FILE, path_text};
use plmkit_store::{EmbeddingsReader, StoreError, files_in, read_input, remove_file, write_json};
use serde::{Deserialize, Serialize};

use crate::args::Stage;
use crate::model::Model;
use crate::options::{AllOptions, ProgramOptions};
use crate::plan::Sample;
use crate::sample::{MANIFEST, MANIFEST_BEFORE, is_of_shard};

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

/// What the parameters of an earlier run say about the batches and embeddings in the folder.
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
        serde_json::from_slice(&read_input(&Self::file(outdir)).ok()?).ok()
    }

    /// Compares with the run that began what is in the folder. A stage that goes on with it cannot change how.
    ///
    /// How records are cut is in the manifest of each sample, which fasta-shard compares.
    pub(crate) fn compare(
        outdir: &Path,
        options: &AllOptions,
        model: &Model,
        stage: Option<Stage>,
        (force, stop): (bool, &Stop),
    ) -> Result<Existing, Fault> {
        let goes_on = matches!(stage, Some(Stage::Embed | Stage::Finish));
        let first = embeddings(outdir).next();
        let shown = path_text(outdir);
        let Some(earlier) = Self::read(outdir) else {
            return match first {
                _ if goes_on => {
                    let what = "no run began here: expected a folder of --stage prepare";
                    Err(Fault::new(Exit::NoInput, format!("{shown}: {what}")))
                }
                Some(_) => Ok(Existing::Unknown),
                None => Ok(Existing::Same),
            };
        };
        // The same weights may have another path, or be a copy.
        let is_other = || match &first {
            Some(first) => model.made(first, stop).map(|made| !made),
            None => Ok(!(model.is(&earlier.model) || earlier.has_weights_of(model))),
        };
        let options = earlier.other_options(options, first.as_deref());
        let other = match (options, earlier.other_model(model)) {
            (Some(other), _) => other,
            (None, Some(other)) if is_other()? => other,
            (None, _) => return Ok(Existing::Same),
        };
        let what = if goes_on {
            format!("was prepared with {other}; expected the same, or --stage prepare again")
        } else if force || first.is_none() {
            return Ok(Existing::Replaced);
        } else {
            format!(
                "has embeddings of {other}; expected another folder, or --force, which replaces them"
            )
        };
        Err(Fault::new(Exit::CannotCreate, format!("{shown}: {what}")))
    }

    /// The options that decide the values of embeddings and differ, if any do. `first` are embeddings of that run.
    fn other_options(&self, options: &AllOptions, first: Option<&Path>) -> Option<String> {
        // What was found on a machine, embeddings of it tell.
        let is_made_as = |now: &ProgramOptions| {
            let made = EmbeddingsReader::open(first?).ok()?;
            let of = |name| made.provenance().text_option(name);
            Some([of("device")?, of("dtype")?] == now.computation())
        };
        for (name, was, now) in [
            ("gpu-embed", &self.gpu_embed, &options.gpu_embed),
            ("pack-batches", &self.pack_batches, &options.pack_batches),
        ] {
            let known = ProgramOptions::parse(was).unwrap_or_default();
            let is_same = known.canonical() == now.canonical()
                || known.settled() == now.settled() && is_made_as(now) == Some(true);
            if !is_same {
                let deciding = |options: &ProgramOptions| match &*options.deciding() {
                    "" => "without options".to_owned(),
                    deciding => format!("'{deciding}'"),
                };
                let [was, now] = [&known, now].map(deciding);
                return Some(format!("{name} {was}, which is now {now}"));
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
        let is_known = !self.weights.is_empty() && !model.weights.is_empty();
        (is_known && !self.has_weights_of(model)).then(|| "other weights".to_owned())
    }

    /// Whether the files of the model are those of this run. A model that was still to be fetched had none yet.
    fn has_weights_of(&self, model: &Model) -> bool {
        !self.weights.is_empty() && self.weights == model.weights
    }

    /// Writes the parameters of this run. Embeddings that they may not be those of are marked before, and batches are removed.
    pub(crate) fn write(
        &self,
        outdir: &Path,
        existing: Existing,
        samples: &[Sample],
    ) -> Result<(), Fault> {
        let is_ours = |path: &PathBuf| {
            let folder = path.ancestors().nth(2).unwrap_or(path);
            let is_asked = |sample: &Sample| outdir.join(&sample.name) == folder;
            let names = [MANIFEST, MANIFEST_BEFORE, DATASET_FILE];
            let is_sample = names.iter().any(|name| folder.join(name).exists());
            is_of_shard(path) && (is_sample || samples.iter().any(is_asked))
        };
        if existing != Existing::Same {
            for path in embeddings(outdir).filter(is_ours) {
                let mark = mark_of(&path);
                File::create(&mark).map_err(StoreError::cannot_create(&mark))?;
            }
            for path in in_samples(outdir, "batches", "arrow").filter(is_ours) {
                remove_file(&path)?;
            }
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
    // A combined dataset has parts, and is no sample.
    let of_shards = embeddings(outdir).filter(|path| is_of_shard(path));
    let names = of_shards.filter_map(|path| {
        let sample = path.parent()?.parent()?;
        Some(sample.file_name()?.to_string_lossy().into_owned())
    });
    names.collect()
}

/// The embeddings of all samples in a folder of results.
pub(crate) fn embeddings(outdir: &Path) -> impl Iterator<Item = PathBuf> {
    in_samples(outdir, "embeddings", "parquet")
}

/// The files with this extension in a folder of each sample.
fn in_samples(
    outdir: &Path,
    folder: &'static str,
    extension: &'static str,
) -> impl Iterator<Item = PathBuf> {
    let samples = fs::read_dir(outdir).into_iter().flatten().flatten();
    samples.flat_map(move |sample| {
        files_in(&sample.path().join(folder), &[extension]).unwrap_or_default()
    })
}
