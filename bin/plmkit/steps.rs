//! The steps of one sample as calls of the programs: cut, pack, embed, validate.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::Path;

use plmkit_cli::{Exit, Fault, LogFormat};
use plmkit_contract::{ShardSummary, path_text};
use plmkit_store::{AtomicFile, StoreError, read_input, remove_file};

use crate::fasta::head;
use crate::params::mark_of;
use crate::programs::Arguments;
use crate::sample::{SampleFolder, name_of};

impl SampleFolder<'_> {
    /// Cuts the FASTA into shards. What was made of other shards is removed.
    pub(crate) fn cut(&self) -> Result<Exit, Fault> {
        let manifest = self.manifest_path();
        let before = self.manifest_before();
        if manifest.exists() && !before.exists() {
            let text = read_input(&manifest)?;
            let mut copy = AtomicFile::create(&before)?;
            copy.append(&text)?;
            copy.finish()?;
        }
        // Killed while it cut again.
        let force = self.run.args.force || before.exists() && !manifest.exists();
        let mut exit = self.run_fasta_shard(force)?;
        // Without --force, another input was refused before this: what was lost is cut again, of the same input.
        if exit == Exit::Data && !force && self.has_lost_shards() {
            tracing::info!("{}: lost shards are cut again", self.sample.name);
            exit = self.run_fasta_shard(true)?;
        }
        if exit != Exit::Done {
            return Ok(exit);
        }
        if differ(&before, &manifest) {
            self.remove_shard_files()?;
        }
        remove_file(&before)?;
        for folder in ["embeddings", "logs", "reports"] {
            let folder = self.path.join(folder);
            fs::create_dir_all(&folder).map_err(StoreError::cannot_create(&folder))?;
        }
        Ok(Exit::Done)
    }

    fn run_fasta_shard(&self, force: bool) -> Result<Exit, Fault> {
        let options = &self.run.options.fasta_shard;
        let mut arguments = Arguments::default();
        arguments.value("--sample", &self.sample.name);
        arguments.value("--out", self.path.join("shards"));
        arguments.value(
            "--max-shard-tokens",
            self.run.args.max_shard_tokens.to_string(),
        );
        arguments.options(options);
        arguments.flag(
            "--allow-empty",
            self.run.args.allow_empty && !options.has("--allow-empty"),
        );
        arguments.flag("--force", force && !options.has("--force"));
        arguments.add("--");
        self.sample
            .fasta
            .iter()
            .for_each(|path| arguments.add(path));
        self.run.programs.run("fasta-shard", arguments)
    }

    /// Packs and embeds a shard, with a record of the machine beside it.
    pub(crate) fn embed(&self, shard: &ShardSummary) -> Result<Exit, Fault> {
        let name = name_of(shard);
        let batches = self.batches(name);
        let exit = self.pack(shard, &batches)?;
        if exit != Exit::Done {
            return Ok(exit);
        }
        // Embeddings that are there are compared, and those of this work are kept: a killed run may have left a gpu-embed behind that
        // finishes them meanwhile.
        let exists = self.embeddings(name).is_file();
        let list = self.path.join(format!("rejects/{name}.csv"));
        let force = self.run.args.force;
        if !exists || force {
            self.cleared(&format!("logs/{name}.samples.csv"))?;
            self.cleared(&format!("logs/{name}.events.jsonl"))?;
        }
        let mut exit = self.compute(name, &batches, false)?;
        // A second try that has nothing to replace would end as the first.
        let is_refused = (exists || list.is_file())
            && match exit {
                Exit::CannotCreate => !exists || force,
                exit => exit == Exit::Data && force,
            };
        if is_refused {
            if exists {
                let path = path_text(&self.embeddings(name));
                tracing::info!("{path}: made again, since --force says so");
            }
            remove_if_zeros(&list)?;
            remove_if_zeros(&self.embeddings(name))?;
            exit = self.compute(name, &batches, true)?;
        }
        // A second task of the same number, as of a scheduler that repeats it, has finished the shard meanwhile.
        if exit == Exit::NoInput && !batches.exists() && self.embeddings(name).exists() {
            return Ok(Exit::Done);
        }
        if exit == Exit::Data {
            tell_remedy(&self.sample.name);
        }
        // Sequences that could not be embedded are listed, and the validation accounts for them.
        if exit == Exit::Done || exit == Exit::Negative {
            remove_file(&batches)?;
            remove_file(&mark_of(&self.embeddings(name)))?;
            return Ok(Exit::Done);
        }
        Ok(exit)
    }

    /// Packs a shard, with the measured size of batches unless the options say another.
    fn pack(&self, shard: &ShardSummary, batches: &Path) -> Result<Exit, Fault> {
        let options = &self.run.options.pack_batches;
        let folder = self.path.join("batches");
        fs::create_dir_all(&folder).map_err(StoreError::cannot_create(&folder))?;
        let mut arguments = Arguments::default();
        arguments.add(self.path.join("shards").join(&shard.file));
        arguments.value("--out", batches);
        if !options.has("--max-batch-tokens") {
            // A shard keeps its batches, on another GPU too: what gpu-embed has saved of it belongs to them.
            if batches.exists() && !options.has("--force") && !self.run.args.force {
                return Ok(Exit::Done);
            }
            let exit = self.run.need_batch_size()?;
            if exit != Exit::Done {
                return Ok(exit);
            }
            arguments.value("--batch-size", self.run.batch_size_file());
        }
        remove_if_zeros(batches)?;
        arguments.flag("--force", !options.has("--force"));
        arguments.flag("--quiet", !options.has("--quiet"));
        arguments.options(options);
        self.run.programs.run("pack-batches", arguments)
    }

    fn compute(&self, name: &str, batches: &Path, force: bool) -> Result<Exit, Fault> {
        let options = &self.run.options.gpu_embed.of_sample(&self.sample.name);
        let out = self.embeddings(name);
        let rejects = self.path.join(format!("rejects/{name}.csv"));
        fs::create_dir_all(self.path.join("rejects"))
            .map_err(StoreError::cannot_create(&rejects))?;
        let mut arguments = Arguments::default();
        arguments.add("record");
        arguments.flag("--quiet", true);
        arguments.value("--out", self.path.join(format!("logs/{name}.samples.csv")));
        arguments.add("--");
        arguments.add(self.run.programs.path("gpu-embed"));
        arguments.add(batches);
        if self.run.args.common.log_format == LogFormat::Json && !options.has("--log-format") {
            arguments.value("--log-format", "json");
        }
        arguments.value("--model", &self.run.model.name);
        // What is left of lost embeddings, or of other work, is replaced.
        arguments.flag("--force", force && !options.has("--force"));
        arguments.value("--out", out);
        arguments.value("--rejects", rejects);
        arguments.value(
            "--events",
            self.path.join(format!("logs/{name}.events.jsonl")),
        );
        // One that a killed run left behind may still be at work on this shard.
        arguments.flag("--wait-for-lock", !options.has("--wait-for-lock"));
        if !stderr().is_terminal() && !options.has("--progress") {
            arguments.value("--progress", "none");
        }
        arguments.options(options);
        // That there is no GPU is told once, and not for each shard.
        if !options.has("--device") && self.run.has_no_gpu() {
            arguments.value("--device", "cpu");
        }
        arguments.flag(
            "--quiet",
            self.run.args.common.quiet && !options.has("--quiet"),
        );
        self.run.programs.run("monitor-log", arguments)
    }

    /// Reports on the runs of all shards. Logs that were removed or damaged cost the report alone.
    fn report(&self) -> Result<Exit, Fault> {
        let name = &self.sample.name;
        if self.files("logs", &["jsonl"]).is_empty() {
            tracing::warn!("{name}: no run events in its folder logs, so no report on its runs");
            return Ok(Exit::Done);
        }
        let mut report = Arguments::default();
        report.add("report");
        report.flag("--quiet", true);
        if !self.files("logs", &["csv"]).is_empty() {
            report.value("--gpu", self.path.join("logs"));
        }
        report.value("--events", self.path.join("logs"));
        report.value("--out", self.cleared("reports/run.json")?);
        let mqc = format!("reports/{name}_run_mqc.json");
        report.value("--mqc", self.cleared(&mqc)?);
        report.value("--html", self.cleared("reports/run.html")?);
        let exit = self.run.programs.run("monitor-log", report)?;
        Ok(match exit {
            Exit::Data | Exit::NoInput => Exit::Done,
            exit => exit,
        })
    }

    /// Validates the sample, with a report on its runs.
    pub(crate) fn validate(&self) -> Result<Exit, Fault> {
        let name = &self.sample.name;
        // An empty folder: nothing was rejected.
        let _ = fs::remove_dir(self.path.join("rejects"));
        let reported = self.report()?;
        let has_surplus = self.tell_surplus()?;
        let options = &self.run.options.validate_embeddings;
        let mut arguments = Arguments::default();
        arguments.value("--dataset", &self.path);
        let mqc = format!("reports/{name}_validation_mqc.json");
        arguments.value("--mqc", self.cleared(&mqc)?);
        if !options.has("--html") {
            arguments.value("--html", self.cleared("reports/validation.html")?);
        }
        arguments.value("--model", &self.run.model.name);
        arguments.flag(
            "--allow-empty",
            self.run.args.allow_empty && !options.has("--allow-empty"),
        );
        arguments.flag("--quiet", !options.has("--quiet"));
        arguments.options(options);
        // TMPDIR may be missing or full, which would show after hours.
        let temporary = self.path.join(".temporary");
        fs::create_dir_all(&temporary).map_err(StoreError::cannot_create(&temporary))?;
        arguments.1 = Some(temporary.clone());
        let validated = self.run.programs.run("validate-embeddings", arguments);
        // What a killed run left goes, too.
        let _ = fs::remove_dir_all(&temporary);
        let validated = validated?;
        match validated {
            Exit::Done => self.remove_batches()?,
            Exit::Data if !has_surplus => tell_remedy(name),
            _ => {}
        }
        Ok(if validated == Exit::Done {
            reported
        } else {
            validated
        })
    }

    /// Removes the batches that a run left which was killed after it had embedded them. Other files of the folder stay.
    fn remove_batches(&self) -> Result<(), Fault> {
        for shard in self.manifest()?.shards {
            remove_file(&self.batches(name_of(&shard)))?;
        }
        let _ = fs::remove_dir(self.path.join("batches"));
        Ok(())
    }
}

/// Removes a file of zeros, which one may be after a crash of the machine: nothing tells that it is ours.
fn remove_if_zeros(path: &Path) -> Result<(), Fault> {
    let head = head(path);
    if !head.is_empty() && head.iter().all(|&byte| byte == 0) {
        remove_file(path)?;
    }
    Ok(())
}

/// Says what mends a sample of which a program refused a file of its own.
fn tell_remedy(sample: &str) {
    tracing::error!("{sample}: if a file of it is damaged, --force makes that again");
}

/// Whether a file existed before and has other bytes now.
fn differ(before: &Path, now: &Path) -> bool {
    read_input(before).is_ok_and(|before| read_input(now).is_ok_and(|now| now != before))
}
