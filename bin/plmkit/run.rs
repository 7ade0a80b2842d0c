//! A run, and what its stages share.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::{BatchSize, path_text};
use plmkit_store::{StoreError, read_sealed};

use crate::args::Args;
use crate::model::Model;
use crate::options::AllOptions;
use crate::params::{Existing, Params};
use crate::plan::Sample;
use crate::programs::{Arguments, Programs};
use crate::versions::{VERSIONS_FILE, Versions};

/// The name of the file with the measured size of a batch, in a folder of results.
pub(crate) const BATCH_SIZE_FILE: &str = "batch-size.json";

/// All that a run is asked for, checked.
pub(crate) struct Run {
    pub(crate) args: Args,
    pub(crate) programs: Programs,
    pub(crate) options: AllOptions,
    pub(crate) model: Model,
    pub(crate) existing: Existing,
    /// The embeddings that were there when the parameters were compared.
    pub(crate) embedded: BTreeSet<PathBuf>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) versions: Versions,
}

impl Run {
    /// How the results are made.
    fn params(&self) -> Params {
        let inputs = self.args.inputs.iter().map(|path| path_text(path));
        Params {
            samples: inputs.collect::<Vec<_>>().join(" "),
            outdir: path_text(&self.args.out),
            model: self.model.name.clone(),
            max_shard_tokens: self.args.max_shard_tokens,
            fasta_shard: self.options.fasta_shard.text(),
            pack_batches: self.options.pack_batches.text(),
            gpu_embed: self.options.gpu_embed.text(),
            validate_embeddings: self.options.validate_embeddings.text(),
            weights: self.model.weights.clone(),
            allow_empty: self.args.allow_empty,
        }
    }

    /// Writes how the results are made, before they are.
    pub(crate) fn write_start(&self) -> Result<(), Fault> {
        let info = self.args.out.join("pipeline_info");
        fs::create_dir_all(&info).map_err(StoreError::cannot_create(&info))?;
        self.params()
            .write(&self.args.out, self.existing, &self.samples)?;
        self.versions
            .write(&self.args.out, &self.model, &self.programs)
    }

    /// The file with the measured size of a batch.
    pub(crate) fn batch_size_file(&self) -> PathBuf {
        self.args.out.join(BATCH_SIZE_FILE)
    }

    /// Whether this machine, which does the whole run, measured no GPU.
    pub(crate) fn has_no_gpu(&self) -> bool {
        let is_cpu = |size: BatchSize| size == BatchSize::for_cpu();
        let measured = || read_sealed(&self.batch_size_file());
        self.args.stage.is_none() && self.has_measured() && measured().is_ok_and(is_cpu)
    }

    /// Whether this run has measured the size of a batch: it wrote versions.yml, and the size is newer.
    fn has_measured(&self) -> bool {
        let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
        let measured = changed(&self.batch_size_file());
        measured.is_some() && measured > changed(&self.args.out.join(VERSIONS_FILE))
    }

    /// Measures the size of a batch, unless this run has.
    pub(crate) fn need_batch_size(&self) -> Result<Exit, Fault> {
        if self.has_measured() {
            return Ok(Exit::Done);
        }
        let exit = self.measure_batch_size()?;
        if exit == Exit::Done {
            self.renew_batch_size()?;
        }
        Ok(exit)
    }

    /// Notes that this run has measured the size of a batch.
    pub(crate) fn renew_batch_size(&self) -> Result<(), Fault> {
        let path = self.batch_size_file();
        let touched = File::options().write(true).open(&path);
        let touched = touched.and_then(|file| file.set_modified(SystemTime::now()));
        Ok(touched.map_err(StoreError::cannot_write(&path))?)
    }

    /// Measures how many tokens a batch holds on the GPU of this machine. gpu-embed keeps a size of the same model, options, GPU and
    /// version, and measures any other again.
    pub(crate) fn measure_batch_size(&self) -> Result<Exit, Fault> {
        let options = &self.options.gpu_embed;
        let mut arguments = Arguments::default();
        arguments.add("--probe");
        arguments.value("--out", self.batch_size_file());
        arguments.value("--model", &self.model.name);
        arguments.flag("--wait-for-lock", !options.has("--wait-for-lock"));
        arguments.flag("--force", !options.has("--force"));
        arguments.options(options);
        self.programs.run("gpu-embed", arguments)
    }
}
