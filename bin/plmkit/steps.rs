//! The steps of one sample: cut, pack, embed, validate.

use std::fs;
use std::path::Path;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::{DESCRIPTION, Reason, ShardSummary};
use plmkit_kit::path_text;
use plmkit_programs::gpu_embed::{Request, ShardFiles, log_rejected};
use plmkit_programs::monitor_log::{self, ReportArgs};
use plmkit_programs::validate_embeddings::{self, SpotModel};
use plmkit_programs::{fasta_shard, pack_batches};
use plmkit_store::{
    AtomicFile, BatchesFile, FileKind, StoreError, read_input, read_rejects, remove_file,
};

use crate::computer::Computer;
use crate::fasta::head;
use crate::progress::RunBar;
use crate::sample::{SampleFolder, shard_name};

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
        // Killed while it cut: a stream cannot be compared with unfinished shards and then read again.
        let is_again = before.exists() || self.reads_a_stream();
        let force = self.run.args.force || is_again && !manifest.exists();
        let mut cut = self.run_fasta_shard(force);
        // The input is the same: without --force, another one was refused before. So lost shards can be cut again.
        if exit_code(&cut) == Exit::Data
            && !force
            && self.has_lost_shards()
            && !self.reads_a_stream()
        {
            tracing::info!("{}: lost shards are cut again", self.sample.name);
            cut = self.run_fasta_shard(true);
        }
        cut?;
        self.run.check_stop()?;
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
        let run = self.run;
        let mut options = run.programs.shard_args(&run.args.out, &self.sample.name);
        options.inputs.clone_from(&self.sample.fasta);
        options.force |= force;
        options.allow_empty |= run.samples.len() > 1;
        fasta_shard::run(options, &run.stop)
    }

    /// Packs and embeds a shard, with a record of the machine beside it.
    pub(crate) fn embed(
        &self,
        shard: &ShardSummary,
        computer: &mut Computer<'_>,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Exit, Fault> {
        let (name, run) = (shard_name(shard), self.run);
        let batches = self.batches(name);
        self.pack(shard, &batches)?;
        run.check_stop()?;
        // Embeddings that are there are compared, and those of this work are kept.
        let out = self.embeddings(name);
        let (exists, force) = (out.is_file(), run.args.force);
        let list = self.path.join(format!("rejects/{name}.csv"));
        let logs = ["samples.csv", "events.jsonl"].map(|log| format!("logs/{name}.{log}"));
        if !exists || force {
            for log in &logs {
                self.cleared(log)?;
            }
        }
        let rejects = self.path.join("rejects");
        fs::create_dir_all(&rejects).map_err(StoreError::cannot_create(&rejects))?;
        let [samples, events] = logs.map(|log| self.path.join(log));
        let mut files = ShardFiles {
            batches: batches.clone(),
            out: out.clone(),
            rejects: list.clone(),
            events,
            samples,
            checkpoint_dir: self.checkpoint_dir(),
            force: force && lists_retryable(&list),
        };
        let mut compute = |files: &ShardFiles| {
            let request = Request::Embed(Box::new(files.clone()));
            computer.answer(&run.programs.gpu_embed, &request, &run.stop, advance)
        };
        let mut ended = compute(&files);
        // A second try that has nothing to replace would end as the first.
        let replaces_saved = force && self.has_saved_batches(name);
        let is_refused = (exists || list.is_file() || replaces_saved)
            && match exit_code(&ended) {
                Exit::CannotCreate => !exists || force,
                exit => exit == Exit::Data && force,
            };
        if is_refused {
            if exists {
                let path = path_text(&out);
                tracing::info!("{path}: made again, since --force says so");
            }
            remove_if_damaged(&list, false)?;
            remove_if_damaged(&out, force)?;
            files.force = true;
            ended = compute(&files);
        }
        run.check_stop()?;
        // A second task of the same number, as of a scheduler that repeats it, has finished the shard meanwhile.
        if exit_code(&ended) == Exit::NoInput && !batches.exists() && out.exists() {
            return Ok(Exit::Done);
        }
        // What is wrong with the model, or with an input, stays.
        let is_of_sample = |fault: &Fault| fault.message().contains(&path_text(&self.path));
        if exit_code(&ended) == Exit::Data && ended.as_ref().is_err_and(is_of_sample) {
            log_remedy(&self.sample.name);
        }
        // Sequences that could not be embedded are listed, and the validation accounts for them.
        if ended? == Exit::Negative {
            log_rejected(&out, &list);
        }
        remove_file(&batches)?;
        Ok(Exit::Done)
    }

    /// Packs a shard, with the measured size of batches unless the options say another.
    fn pack(&self, shard: &ShardSummary, batches: &Path) -> Result<Exit, Fault> {
        let mut args = self.run.programs.pack_batches.clone();
        let folder = self.path.join("batches");
        fs::create_dir_all(&folder).map_err(StoreError::cannot_create(&folder))?;
        let has_size = self.run.programs.has_batch_size();
        if !has_size || self.has_saved_batches(shard_name(shard)) {
            // A shard keeps its batches, on another GPU too: what gpu-embed has saved of it belongs to them. What they are, if they are
            // damaged, gpu-embed tells.
            let found = BatchesFile::open_unverified(batches);
            let options = found.map(|found| found.provenance().options.clone());
            let has_description = options
                .as_ref()
                .map_or(args.options.description, |options| {
                    options.contains_key(DESCRIPTION)
                });
            let is_same = has_description == args.options.description;
            if batches.exists() && is_same && !self.run.args.force {
                let size = options
                    .ok()
                    .and_then(|mut it| it.remove("max_batch_tokens"));
                let asked = args.options.max_batch_tokens;
                if let Some((size, asked)) = size.zip(asked).filter(|(size, asked)| *size != *asked)
                {
                    let (name, batches) = (&self.sample.name, shard_name(shard));
                    tracing::warn!(
                        "{name}: {batches} keeps its batches of {size} tokens, of which some are saved; expected {asked} with --force, which computes them again"
                    );
                }
                return Ok(Exit::Done);
            }
        }
        if !has_size {
            args.batch_size = Some(self.run.batch_size_file());
        }
        remove_if_damaged(batches, self.run.args.force)?;
        args.shard = self.path.join("shards").join(&shard.file);
        batches.clone_into(&mut args.out);
        args.force = true;
        pack_batches::run(&args, &self.run.stop)
    }

    /// Reports on the runs of all shards. Logs that were removed or damaged cost the report alone.
    fn report(&self) -> Result<Exit, Fault> {
        let name = &self.sample.name;
        if self.files("logs", &["jsonl"]).is_empty() {
            tracing::warn!("{name}: no run events in its folder logs, so no report on its runs");
            return Ok(Exit::Done);
        }
        let logs = vec![self.path.join("logs")];
        let mut samples = logs.clone();
        if self.files("logs", &["csv"]).is_empty() {
            samples.clear();
        }
        let reported = monitor_log::report(&ReportArgs {
            gpu: samples,
            events: logs,
            out: Some(self.cleared("reports/run.json")?),
            mqc: Some(self.cleared(&format!("reports/{name}_run_mqc.json"))?),
            html: None,
            peak_tflops: None,
            fail_on: None,
        });
        match exit_code(&reported) {
            Exit::Data | Exit::NoInput => {
                if let Err(fault) = &reported {
                    tracing::error!("{}", fault.message());
                }
                Ok(Exit::Done)
            }
            _ => reported,
        }
    }

    /// Validates the sample, with a report on its runs.
    pub(crate) fn validate(
        &self,
        spot: Option<&mut SpotModel>,
        progress: &RunBar,
    ) -> Result<Exit, Fault> {
        let name = &self.sample.name;
        // An empty folder: nothing was rejected.
        let _ = fs::remove_dir(self.path.join("rejects"));
        let before = self.look();
        let reported = self.report()?;
        let has_surplus = self.report_surplus()?;
        let mut options = self.run.programs.validate_embeddings.clone();
        options.dataset = Some(self.path.clone());
        options.allow_empty |= self.is_empty_among_others();
        options.mqc = Some(self.cleared(&format!("reports/{name}_validation_mqc.json"))?);
        // TMPDIR may be missing or full, which would show after hours.
        let temporary = self.path.join(".temporary");
        fs::create_dir_all(&temporary).map_err(StoreError::cannot_create(&temporary))?;
        options.temporary = Some(temporary.clone());
        let validated = validate_embeddings::validate(
            options,
            spot,
            &|done| progress.show(done),
            &self.run.stop,
        );
        // What a killed run left goes, too.
        let _ = fs::remove_dir_all(&temporary);
        self.run.check_stop()?;
        match exit_code(&validated) {
            Exit::Done => self.remove_batches()?,
            Exit::Data if !has_surplus => log_remedy(name),
            _ => {}
        }
        match validated {
            Ok(Exit::Done) if reported == Exit::Done && !has_surplus => {
                self.look().keep(&before, &self.run.args.out, name);
                Ok(Exit::Done)
            }
            Ok(Exit::Done) => Ok(reported),
            validated => validated,
        }
    }

    /// Removes the batches that a run left which was killed after it had embedded them. Other files of the folder stay.
    fn remove_batches(&self) -> Result<(), Fault> {
        for shard in self.manifest()?.shards {
            remove_file(&self.batches(shard_name(&shard)))?;
        }
        let _ = fs::remove_dir(self.path.join("batches"));
        Ok(())
    }
}

/// How a step ended.
pub(crate) fn exit_code(ended: &Result<Exit, Fault>) -> Exit {
    ended.as_ref().map_or_else(Fault::exit, |exit| *exit)
}

/// Removes a file of zeros, which one may be after a crash of the machine: nothing tells that it is ours. With `force`, removes any file
/// that is of no known kind.
fn remove_if_damaged(path: &Path, force: bool) -> Result<(), Fault> {
    let head = head(path);
    let is_unknown = || force && FileKind::detect(path).is_none();
    if !head.is_empty() && (head.iter().all(|&byte| byte == 0) || is_unknown()) {
        remove_file(path)?;
    }
    Ok(())
}

/// Whether a list has sequences that another try may embed.
fn lists_retryable(list: &Path) -> bool {
    let lines = read_rejects(list).map_or(Vec::new(), |list| list.lines);
    let is_retryable = |reason| matches!(reason, Reason::OutOfMemory | Reason::WorkerLost);
    lines.into_iter().any(|line| is_retryable(line.reason))
}

/// Says what mends a sample of which a program refused a file of its own.
fn log_remedy(sample: &str) {
    tracing::error!("{sample}: if a file of it is damaged, --force makes that again");
}

/// Whether a file existed before and has other bytes now.
fn differ(before: &Path, now: &Path) -> bool {
    read_input(before).is_ok_and(|before| read_input(now).is_ok_and(|now| now != before))
}
