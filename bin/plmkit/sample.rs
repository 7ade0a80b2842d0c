//! The folder of one sample: what is in it, what of that still holds, and what does not.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use plmkit_cli::Fault;
use plmkit_contract::{Manifest, Provenance, RowDigest, SOURCE, ShardSummary};
use plmkit_engine::{has_saved_batches, run_folder};
use plmkit_kit::{is_stream, path_text};
use plmkit_programs::gpu_embed::Session;
use plmkit_sequence::is_shard_name;
use plmkit_store::{
    FileKind, ShardReader, StoreError, files_in, read_input, read_sealed, remove_file,
};

use crate::finished::Judged;
use crate::layout::{MANIFEST, MANIFEST_BEFORE, OF_SHARDS, is_shard_file};
use crate::params::{difference, provenance};
use crate::run::Run;
use crate::samples::Sample;

/// A sample in its folder of results.
pub(crate) struct SampleFolder<'r> {
    pub(crate) run: &'r Run,
    pub(crate) sample: &'r Sample,
    pub(crate) path: PathBuf,
}

impl<'r> SampleFolder<'r> {
    pub(crate) fn new(run: &'r Run, sample: &'r Sample) -> Self {
        Self {
            run,
            sample,
            path: run.args.out.join(&sample.name),
        }
    }

    /// The manifest of the shards, if the sample is cut.
    pub(crate) fn manifest(&self) -> Result<Manifest, StoreError> {
        read_sealed(&self.manifest_path())
    }

    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// See [`MANIFEST_BEFORE`]. It stays if the cut is interrupted or refused.
    pub(crate) fn manifest_before(&self) -> PathBuf {
        self.path.join(MANIFEST_BEFORE)
    }

    /// Whether the last attempt to cut the sample succeeded.
    pub(crate) fn is_cut(&self) -> bool {
        self.manifest_path().exists() && !self.manifest_before().exists()
    }

    /// Ends an attempt to cut the sample that was refused, if its shards are as they were.
    pub(crate) fn discard_attempt(&self) -> Result<(), Fault> {
        let before = self.manifest_before();
        let [kept, now] = [&before, &self.manifest_path()].map(|path| read_input(path).ok());
        if kept.is_some() && kept == now {
            remove_file(&before)?;
        }
        Ok(())
    }

    /// Whether a file of the shards is lost. Without a manifest there were none.
    pub(crate) fn has_lost_shards(&self) -> bool {
        let shards = self.path.join("shards");
        self.manifest().is_ok_and(|manifest| {
            let mut files = manifest.files();
            files.any(|(file, ..)| !shards.join(file).exists())
        })
    }

    /// Whether an input can be read once.
    pub(crate) fn reads_a_stream(&self) -> bool {
        self.sample.fasta.iter().any(|path| is_stream(path))
    }

    /// Whether the sample has no protein, and another sample of the run has some.
    pub(crate) fn is_empty_among_others(&self) -> bool {
        let has_proteins = |sample| {
            let manifest = SampleFolder::new(self.run, sample).manifest();
            manifest.is_ok_and(|found| found.records > found.rejected.values().sum())
        };
        !has_proteins(self.sample) && self.run.samples.iter().any(has_proteins)
    }

    /// Removes what was made of the shards, saved work of unfinished embeddings, too.
    pub(crate) fn remove_shard_files(&self) -> Result<(), Fault> {
        let entries = fs::read_dir(self.path.join("embeddings")).into_iter();
        for entry in entries.flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let output = name
                .strip_prefix('.')
                .and_then(|name| name.strip_suffix(".plmkit-run"));
            if output.is_some_and(is_shard_name) {
                // It is of no shard now; what stays costs space alone.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        for (folder, extensions) in OF_SHARDS {
            let files = self.files(folder, extensions).into_iter();
            for file in files.filter(|file| is_shard_file(file)) {
                remove_file(&file)?;
            }
        }
        Ok(())
    }

    /// The files in a folder of the sample; none if it does not exist.
    pub(crate) fn files(&self, folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
        files_in(&self.path.join(folder), extensions).unwrap_or_default()
    }

    /// The place of a log, list or report that is made again. Removes a file there whose kind is not known: programs do not replace it.
    pub(crate) fn cleared(&self, file: &str) -> Result<PathBuf, Fault> {
        let path = self.path.join(file);
        if path.exists() && !path.is_dir() && FileKind::detect(&path).is_none() {
            remove_file(&path)?;
        }
        Ok(path)
    }

    /// The folder of checkpoints, if it is not that of the embeddings. They have the names of shards.
    pub(crate) fn checkpoint_dir(&self) -> Option<PathBuf> {
        let dir = self.run.args.gpu_embed.checkpoint_dir.as_ref();
        dir.map(|dir| dir.join(&self.sample.name))
    }

    pub(crate) fn batches(&self, name: &str) -> PathBuf {
        self.path.join(format!("batches/{name}.arrow"))
    }

    pub(crate) fn embeddings(&self, name: &str) -> PathBuf {
        self.path.join(format!("embeddings/{name}.parquet"))
    }

    /// Whether batches of a shard that is not complete were saved.
    pub(crate) fn has_saved_batches(&self, name: &str) -> bool {
        has_saved_batches(&self.embeddings(name), self.checkpoint_dir().as_deref())
    }

    /// Whether a shard is embedded as this run would do it, and nothing is left of the computation. Its list of rejects, if it has one,
    /// is written before. With --force, damaged ones are replaced, so that none is taken as done.
    pub(crate) fn is_embedded(&self, session: &Session, shard: &ShardSummary) -> bool {
        if self.is_finished() {
            return true;
        }
        let path = self.embeddings(shard_name(shard));
        !self.run.args.force
            && path.exists()
            && !run_folder(&path, self.checkpoint_dir().as_deref()).exists()
            && provenance(&path).is_none_or(|found| {
                let shard = self.path.join("shards").join(&shard.file);
                difference(&found, &self.run.programs, session).is_none()
                    && is_made_of_shard(&found, &shard).unwrap_or(true)
            })
    }

    /// Whether the verdict of an earlier run on all of it holds.
    pub(crate) fn is_finished(&self) -> bool {
        self.run.finished.contains(&self.sample.name)
    }

    /// What a verdict would be about now.
    pub(crate) fn look(&self) -> Judged {
        let run = self.run;
        Judged::look(&run.parameters, &run.args.out, self.sample, &run.programs)
    }

    /// The embeddings that are not what this run would make.
    pub(crate) fn files_with_other_settings(&self, session: &Session) -> Vec<String> {
        if self.is_finished() {
            return Vec::new();
        }
        let embeddings = self.files("embeddings", &["parquet"]).into_iter();
        let other = embeddings.filter(|path| {
            let found = provenance(path);
            found.is_some_and(|found| difference(&found, &self.run.programs, session).is_some())
        });
        other.map(|path| path_text(&path)).collect()
    }

    /// Names files of shards that the manifest does not list: the folder is to be read as one table. Returns whether there are some.
    pub(crate) fn report_surplus(&self) -> Result<bool, Fault> {
        let listed = self.manifest()?.shards;
        let listed: BTreeSet<&OsStr> = listed
            .iter()
            .map(|shard| shard_name(shard).as_ref())
            .collect();
        let is_listed = |file: &Path| file.file_stem().is_some_and(|stem| listed.contains(stem));
        let files = OF_SHARDS[1..3].iter();
        let files = files.flat_map(|(folder, extensions)| self.files(folder, extensions));
        let surplus: Vec<String> = files
            .filter(|file| !is_listed(file))
            .map(|file| path_text(&file))
            .collect();
        if !surplus.is_empty() {
            tracing::error!(
                "{}: files of no shard of this run, remove them: {}",
                self.sample.name,
                surplus.join(" ")
            );
        }
        Ok(!surplus.is_empty())
    }
}

/// The name of a shard's files, without extension.
pub(crate) fn shard_name(shard: &ShardSummary) -> &str {
    shard.file.strip_suffix(".parquet").unwrap_or(&shard.file)
}

/// Whether embeddings have the name of the shard that they were made of, as far as footers tell; `None` if one cannot be read.
fn is_made_of_shard(made_by: &Provenance, shard: &Path) -> Option<bool> {
    let shard = ShardReader::open(shard).ok()?;
    let batches: RowDigest = made_by.inputs.first()?.parse().ok()?;
    let source = shard.provenance().source();
    Some(made_by.text_option(SOURCE) == Some(&*source) && batches.rows() == shard.digest().rows())
}
