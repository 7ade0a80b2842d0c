//! The stages of a run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use plmkit_cli::{DeviceLine, Exit, Fault, ProgressDisplay, Stop, print};
use plmkit_contract::{ShardSummary, ShortIds};
use plmkit_kit::plural;
use plmkit_programs::gpu_embed::{Child, Session};
use plmkit_programs::validate_embeddings::SpotModel;
use plmkit_store::{StoreError, UnfinishedFolder, read_id_values, read_shard, remove_file};

use crate::args::{Args, Stage};
use crate::computer::{self, Computer};
use crate::model;
use crate::params::{difference, embeddings, mixture, provenance};
use crate::preflight::report;
use crate::progress::{RunBar, locked};
use crate::run::Run;
use crate::sample::{SampleFolder, shard_name};
use crate::samples::Sample;
use crate::steps::exit_code;
use crate::summary::Summary;
use crate::versions::write_versions;

/// Failures that stopped a sample and not the run.
#[derive(Default)]
struct Failures {
    /// The first.
    exit: Option<Exit>,
    samples: BTreeSet<String>,
}

pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let (stage, task) = (args.stage, args.task);
    let folders = [&args.out, Path::new(&args.model)].map(|path| path.canonicalize().ok());
    if folders[0].is_some() && folders[0] == folders[1] {
        return Err(Fault::usage("--out and --model are the same folder"));
    }
    if task.is_some() != (stage == Some(Stage::Embed)) {
        return Err(Fault::usage(
            "--task N/COUNT needs --stage embed, and --stage embed needs --task",
        ));
    }
    // The tasks of a scheduler share the folder, and a check changes nothing in it.
    let locks = !matches!(stage, Some(Stage::Embed | Stage::Check));
    let mut folder = UnfinishedFolder::at(&args.out);
    // Before anything in it is looked at.
    let exists = args.out.is_dir();
    if locks && exists {
        folder.lock()?;
    }
    let (run, session) = Run::checked(args, stop)?;
    if stage == Some(Stage::Check) {
        return print(run.rows()).map(|_| Exit::Done);
    }
    let session = match session {
        None => model::open(&run.programs.model_args(stage), true, stop)?,
        session => session,
    };
    let Some(mut session) = session else {
        return Ok(Exit::Done);
    };
    if matches!(stage, None | Some(Stage::Embed)) {
        run.check_device(&session)?;
    }
    if locks && !exists {
        // One that appeared meanwhile is that of another run.
        if !folder.make()? {
            return Err(StoreError::busy(folder.path()).into());
        }
        folder.lock()?;
    }
    let mut failures = Failures::default();
    match stage {
        None => {
            let (mut children, mut is_measured) = (Vec::new(), false);
            // A device that does not work ends a first run here, before anything is cut.
            if run.replaces_embeddings || embeddings(&run.args.out).next().is_none() {
                children = run.children(&session)?;
                run.measure_batch_size(&mut Computer::all(&mut children, &mut session)[0])?;
                is_measured = true;
            }
            let cut = run.cut(&session, &mut failures)?;
            run.estimate(&session, &cut);
            folder.check()?;
            let progress = run.embed(
                &mut session,
                children,
                is_measured,
                &cut,
                None,
                &mut failures,
            )?;
            // What validates loads a model of its own.
            session.unload();
            folder.check()?;
            run.finish(&session, &progress, &mut failures)?;
        }
        Some(Stage::Prepare) => {
            let cut = run.cut(&session, &mut failures)?;
            run.estimate(&session, &cut);
            run.report_uncut();
            print(format!("{}\n", run.shards(&cut)?.len()))?;
        }
        Some(Stage::Embed) => {
            let (cut, _) = run.by_cut();
            if cut.is_empty() {
                let what = "no sample is cut: expected a folder of --stage prepare";
                return Err(Fault::of_path(Exit::NoInput, &run.args.out, what));
            }
            run.embed(&mut session, Vec::new(), false, &cut, task, &mut failures)?;
        }
        Some(Stage::Check | Stage::Finish) => {
            let progress = RunBar::start(&run, &session, 0, 0, &run.by_cut().0);
            run.finish(&session, &progress, &mut failures)?;
        }
    }
    Ok(failures.exit.unwrap_or(Exit::Done))
}

impl Run {
    /// The samples as lines of a table: a line for each FASTA, in order.
    fn rows(&self) -> String {
        let fasta = |sample: &Sample| {
            let name = &sample.name;
            let lines = sample.fasta.iter();
            let lines = lines.map(|path| format!("{name}\t{}\n", path.display()));
            lines.collect::<String>()
        };
        self.samples.iter().map(fasta).collect()
    }

    /// Cuts all samples, and writes how the results are made. Returns those that are cut.
    fn cut(&self, session: &Session, failures: &mut Failures) -> Result<Vec<&Sample>, Fault> {
        let (mut cut, mut ended, mut refused) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (mode, quiet) = (
            self.args.gpu_embed.computation.progress,
            self.args.common.quiet,
        );
        let _shown = ProgressDisplay::of_stages(mode, quiet, &[("cutting", "", 0)]);
        // A run that is refused for the inputs of a sample leaves all as it is.
        for sample in &self.samples {
            let folder = SampleFolder::new(self, sample);
            if folder.is_finished() {
                ended.insert(&sample.name, Exit::Done);
            } else if folder.manifest_path().exists() {
                self.check_stop()?;
                let result = folder.cut();
                let is_refused = match exit_code(&result) {
                    Exit::CannotCreate => !self.args.force,
                    // The rest of an input that can be read once, or an input that was to replace what is there.
                    Exit::Data => {
                        folder.reads_a_stream() || self.args.force && self.samples.len() == 1
                    }
                    _ => false,
                };
                if is_refused {
                    folder.discard_attempt()?;
                    refused.extend(result.err());
                } else {
                    ended.insert(&sample.name, log_sample_error(result)?);
                }
            }
        }
        if !refused.is_empty() {
            return Err(report(refused));
        }
        // A refused run leaves the parameters of embeddings that it was to replace.
        if !self.replaces_embeddings {
            self.write_start(session)?;
        }
        for sample in &self.samples {
            self.check_stop()?;
            let exit = match ended.remove(&sample.name) {
                Some(exit) => exit,
                None => log_sample_error(SampleFolder::new(self, sample).cut())?,
            };
            if failures.go_on_after(exit, sample)? {
                cut.push(sample);
            }
        }
        if cut.len() == self.samples.len() {
            self.check_positions(&cut)?;
        }
        if self.replaces_embeddings && !cut.is_empty() {
            self.write_start(session)?;
        }
        Ok(cut)
    }

    /// Refuses positions of an id that no shard has, or that is short for several. gpu-embed sees a shard at a time, and takes an id
    /// that it lacks for one of another shard.
    fn check_positions(&self, samples: &[&Sample]) -> Result<(), Fault> {
        let Some(path) = &self.args.gpu_embed.scores_positions else {
            return Ok(());
        };
        let lines = read_id_values(path, "position")?;
        let mut named = ShortIds::new(lines.iter().map(|line| &*line.id));
        for (sample, shard) in self.shards(samples)? {
            let shards = SampleFolder::new(self, sample).path.join("shards");
            let shard = read_shard(&shards.join(&shard.file))?;
            for row in shard.rows().iter() {
                named.see(row.key.id);
            }
        }
        for line in &lines {
            let found = named.resolve(&line.id);
            let what = "expected an id of the shards, found none such";
            let found = found.and_then(|found| found.ok_or_else(|| what.to_owned()));
            found.map_err(|what| line.error(path, what))?;
        }
        Ok(())
    }

    /// Names the samples that could not be cut, at the end of a stage that does nothing else.
    fn report_uncut(&self) {
        let (_, uncut) = self.by_cut();
        if !uncut.is_empty() {
            let names: Vec<&str> = uncut.iter().map(|sample| &*sample.name).collect();
            tracing::error!("not cut, see above: {}", names.join(" "));
        }
    }

    /// The samples of which the last attempt to cut them succeeded, and the others.
    fn by_cut(&self) -> (Vec<&Sample>, Vec<&Sample>) {
        let samples = self.samples.iter();
        samples.partition(|sample| SampleFolder::new(self, sample).is_cut())
    }

    /// The shards of samples that are cut, in order.
    fn shards<'s>(&self, samples: &[&'s Sample]) -> Result<Vec<(&'s Sample, ShardSummary)>, Fault> {
        let mut shards = Vec::new();
        for &sample in samples {
            let manifest = SampleFolder::new(self, sample).manifest()?;
            shards.extend(manifest.shards.into_iter().map(|shard| (sample, shard)));
        }
        Ok(shards)
    }

    /// Checks that what is missing can be made, and like what is there.
    fn check_device(&self, session: &Session) -> Result<(), Fault> {
        let is_complete = |sample: &Sample| {
            let folder = SampleFolder::new(self, sample);
            let manifest = folder.manifest();
            manifest.is_ok_and(|manifest| {
                let mut shards = manifest.shards.iter();
                shards.all(|shard| folder.is_embedded(session, shard))
            })
        };
        if self.samples.iter().all(is_complete) {
            return Ok(());
        }
        if let Some(fault) = &self.unavailable {
            return Err(fault.clone());
        }
        if self.args.force {
            return Ok(());
        }
        let mixed = embeddings(&self.args.out).find_map(|path| {
            let found = provenance(&path)?;
            let is_kept = difference(&found, &self.programs, session).is_none();
            is_kept.then(|| mixture(&path, &found, session))?
        });
        mixed.map_or(Ok(()), |what| Err(Fault::new(Exit::CannotCreate, what)))
    }

    /// The children that compute the shards of this run, if not this process does.
    fn children(&self, session: &Session) -> Result<Vec<Child>, Fault> {
        computer::children(&self.programs.gpu_embed, self.args.children, session)
    }

    /// Embeds the shards of these samples, or those of a task. Each computer takes the next shard when it has finished one. Children
    /// that have measured the size of a batch have loaded the model.
    fn embed(
        &self,
        session: &mut Session,
        mut children: Vec<Child>,
        is_measured: bool,
        samples: &[&Sample],
        task: Option<(usize, usize)>,
        failures: &mut Failures,
    ) -> Result<RunBar, Fault> {
        let shards = self.shards(samples)?.into_iter().enumerate();
        let of_task: Vec<(&Sample, ShardSummary)> = shards
            .filter(|(at, _)| task.is_none_or(|(number, count)| at % count == number - 1))
            .map(|(_, shard)| shard)
            .collect();
        let count = of_task.len();
        let (done, mut left): (Vec<_>, Vec<_>) =
            (1..).zip(of_task).partition(|(_, (sample, shard))| {
                SampleFolder::new(self, sample).is_embedded(session, shard)
            });
        // A task that was killed after it had embedded a shard left its batches.
        for (_, (sample, shard)) in &done {
            let folder = SampleFolder::new(self, sample);
            remove_file(&folder.batches(shard_name(shard)))?;
        }
        let tokens = |shards: &[(usize, (&Sample, ShardSummary))]| -> u64 {
            shards.iter().map(|(_, (_, shard))| shard.tokens).sum()
        };
        let before = tokens(&done);
        let total = before + tokens(&left);
        let validated = if task.is_none() { samples } else { &[] };
        let progress = RunBar::start(self, session, total, before, validated);
        if left.is_empty() {
            if let Some((number, tasks)) = task {
                let all = plural(count as u64, "shard");
                tracing::info!(
                    "task {number} of {tasks} has nothing to embed: {all}, all complete"
                );
            }
            return Ok(progress);
        }
        if !is_measured {
            children = self.children(session)?;
        }
        let mut computers = Computer::all(&mut children, session);
        if computers.len() > 1 {
            // The last shards end together.
            left.sort_by_key(|(_, (_, shard))| Reverse(shard.tokens));
        }
        let (left, failures) = (Mutex::new(left.into_iter()), Mutex::new(failures));
        if !is_measured {
            self.measure_batch_size(&mut computers[0])?;
        }
        let work = |computer: &mut Computer<'_>, line: Option<&DeviceLine>| -> Result<(), Fault> {
            let (begin, mut embedded) = (Instant::now(), 0);
            // A lock in the condition would be held while the shard is computed.
            let next = || locked(&left).next();
            while let Some((number, (sample, shard))) = next() {
                self.check_stop()?;
                if locked(&failures).samples.contains(&sample.name) {
                    continue;
                }
                if count > 1 {
                    let (name, shard) = (&sample.name, shard_name(&shard));
                    tracing::info!("{name}: {shard}, {number} of {count} shards");
                }
                let what = format!("{}: {}", sample.name, shard_name(&shard));
                let mut rest = shard.tokens;
                let mut advance = |tokens: u64| {
                    let tokens = tokens.min(rest);
                    rest -= tokens;
                    progress.lock().advance(tokens);
                    embedded += tokens;
                    if let Some(line) = line {
                        line.say(&what, embedded, begin.elapsed());
                    }
                };
                let folder = SampleFolder::new(self, sample);
                let ended = log_sample_error(folder.embed(&shard, computer, &mut advance))
                    .and_then(|exit| locked(&failures).go_on_after(exit, sample));
                if ended.is_err() {
                    // No other shard is begun.
                    locked(&left).by_ref().for_each(drop);
                }
                ended?;
                advance(u64::MAX);
            }
            Ok(())
        };
        let ended = match &mut computers[..] {
            [here] => work(here, None),
            children => thread::scope(|scope| {
                let begin = |(place, computer)| {
                    let line = DeviceLine::add(&progress.lock(), place);
                    scope.spawn(move || work(computer, line.as_ref()))
                };
                let running: Vec<_> = children.iter_mut().enumerate().map(begin).collect();
                let ended = running.into_iter().map(|thread| {
                    let ended = thread.join();
                    ended.unwrap_or_else(|panic| resume_unwind(panic))
                });
                ended.fold(Ok(()), Result::and)
            }),
        };
        ended.map(|()| progress)
    }

    /// Validates every sample that is cut, and writes the summary.
    fn finish(
        &self,
        session: &Session,
        progress: &RunBar,
        failures: &mut Failures,
    ) -> Result<(), Fault> {
        let mut summary = Summary::new(&self.args.out, self.args.allow_empty);
        // That of one sample is freed before its files are read.
        let mut shared = (self.samples.len() > 1).then(SpotModel::default);
        for sample in &self.samples {
            self.check_stop()?;
            let folder = SampleFolder::new(self, sample);
            let failed = failures.samples.contains(&sample.name);
            let mut is_judged = false;
            let name = &sample.name;
            let other = folder.files_with_other_settings(session);
            if folder.is_finished() {
                is_judged = true;
            } else if !other.is_empty() {
                tracing::error!(
                    "{name}: not made with these settings: {}; embed the sample again, or remove what is not of it",
                    other.join(" ")
                );
                failures.exit.get_or_insert(Exit::CannotCreate);
            } else if failed && folder.files("embeddings", &["parquet"]).is_empty() {
                // It has nothing to validate, and why was said.
            } else if folder.is_cut() {
                let exit = log_sample_error(folder.validate(shared.as_mut(), progress))?;
                failures.go_on_after(exit, sample)?;
                // What an earlier run made of a sample may be fine, and is not what this one was asked for.
                is_judged = exit == Exit::Negative || (exit == Exit::Done && !failed);
            } else if self.args.stage.is_none() {
                folder.discard_attempt()?;
            } else {
                tracing::error!("{name}: not cut: expected --stage prepare with it");
            }
            summary.add(name, is_judged)?;
        }
        let fine = summary.finish(&self.stop)?;
        write_versions(&self.args.out, &self.args.model, &self.stop)?;
        if !fine {
            failures.exit.get_or_insert(Exit::Negative);
        }
        Ok(())
    }
}

/// An error of the files of a sample is told, and ends the sample alone.
fn log_sample_error(ended: Result<Exit, Fault>) -> Result<Exit, Fault> {
    match ended {
        Err(fault) if Failures::are_of_sample(fault.exit()) => {
            tracing::error!("{}", fault.message());
            Ok(fault.exit())
        }
        ended => ended,
    }
}

impl Failures {
    fn are_of_sample(exit: Exit) -> bool {
        let own = [
            Exit::Negative,
            Exit::Data,
            Exit::NoInput,
            Exit::CannotCreate,
        ];
        own.contains(&exit)
    }

    /// Whether the sample goes on. A failure of the sample alone (a verdict, its data, an output of its own) does not end the run;
    /// any other does, since it would meet the next sample too.
    fn go_on_after(&mut self, exit: Exit, sample: &Sample) -> Result<bool, Fault> {
        match exit {
            Exit::Done => Ok(true),
            exit if Self::are_of_sample(exit) => {
                self.exit.get_or_insert(exit);
                self.samples.insert(sample.name.clone());
                Ok(false)
            }
            exit => Err(Fault::new(
                exit,
                "ended, see above; run the same command to resume",
            )),
        }
    }
}
