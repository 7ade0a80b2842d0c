//! The stages of a run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plmkit_cli::{Exit, Fault, ProgressDisplay, ProgressMode, Stop, print};
use plmkit_contract::{ShardSummary, path_text};
use plmkit_store::StoreError;

use crate::args::{Args, Stage};
use crate::model::Model;
use crate::options::AllOptions;
use crate::params::{Existing, Params};
use crate::plan::Sample;
use crate::programs::Programs;
use crate::sample::{SampleFolder, name_of};
use crate::summary::Summary;
use crate::versions::{VERSIONS_FILE, Versions};

/// All that a run is asked for, checked.
pub(crate) struct Run {
    pub(crate) args: Args,
    pub(crate) programs: Programs,
    pub(crate) options: AllOptions,
    pub(crate) model: Model,
    pub(crate) existing: Existing,
    pub(crate) samples: Vec<Sample>,
    pub(crate) versions: Versions,
}

/// The first failure that stopped a sample and not the run.
#[derive(Default)]
struct Failures(Option<Exit>);

pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let (stage, task) = (args.stage, args.task);
    if task.is_some() != (stage == Some(Stage::Embed)) {
        return Err(Fault::usage(
            "--task N/COUNT is of --stage embed: expected both or neither",
        ));
    }
    let run = Run::checked(args, stop)?;
    let mut failures = Failures::default();
    match stage {
        None => {
            run.write_start()?;
            let cut = run.cut(&mut failures)?;
            run.estimate(&cut);
            run.embed(&cut, None, &mut failures)?;
            run.finish(&mut failures)?;
        }
        Some(Stage::Prepare) => {
            run.write_start()?;
            let cut = run.cut(&mut failures)?;
            run.estimate(&cut);
            run.tell_uncut();
            print(format!("{}\n", run.shards(&cut)?.len()))?;
        }
        Some(Stage::Embed) => {
            let cut: Vec<&Sample> = run.samples.iter().collect();
            if !cut
                .iter()
                .any(|sample| SampleFolder::new(&run, sample).is_cut())
            {
                let what = "no sample is cut: expected a folder of --stage prepare";
                let what = format!("{}: {what}", path_text(&run.args.out));
                return Err(Fault::new(Exit::NoInput, what));
            }
            run.embed(&cut, task, &mut failures)?;
        }
        Some(Stage::Finish) => run.finish(&mut failures)?,
    }
    Ok(failures.0.unwrap_or(Exit::Done))
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
    fn write_start(&self) -> Result<(), Fault> {
        let info = self.args.out.join("pipeline_info");
        fs::create_dir_all(&info).map_err(StoreError::cannot_create(&info))?;
        self.params().write(&self.args.out, self.existing)?;
        self.versions
            .write(&self.args.out, &self.model, &self.programs)
    }

    /// Cuts all samples. Returns those that are cut.
    fn cut(&self, failures: &mut Failures) -> Result<Vec<&Sample>, Fault> {
        let mut cut = Vec::new();
        for sample in &self.samples {
            self.programs.go_on()?;
            let exit = SampleFolder::new(self, sample).cut()?;
            if failures.go_on_after("fasta-shard", exit)? {
                cut.push(sample);
            }
        }
        Ok(cut)
    }

    /// Names the samples that could not be cut, at the end of a stage that does nothing else.
    fn tell_uncut(&self) {
        let samples = self.samples.iter();
        let uncut = samples.filter(|sample| !SampleFolder::new(self, sample).is_cut());
        let uncut: Vec<&str> = uncut.map(|sample| &*sample.name).collect();
        if !uncut.is_empty() {
            tracing::error!("not cut, see above: {}", uncut.join(" "));
        }
    }

    /// The shards of these samples, in order.
    fn shards<'s>(&self, samples: &[&'s Sample]) -> Result<Vec<(&'s Sample, ShardSummary)>, Fault> {
        let mut shards = Vec::new();
        for &sample in samples {
            // A sample that could not be cut has no verdict in the end.
            match SampleFolder::new(self, sample).manifest() {
                Ok(manifest) => {
                    shards.extend(manifest.shards.into_iter().map(|shard| (sample, shard)));
                }
                Err(StoreError::Open { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(shards)
    }

    /// Embeds the shards of these samples, or those of a task.
    fn embed(
        &self,
        samples: &[&Sample],
        task: Option<(usize, usize)>,
        failures: &mut Failures,
    ) -> Result<(), Fault> {
        let shards = self.shards(samples)?;
        let is_of_task = |at: &usize| task.is_none_or(|(number, count)| at % count == number - 1);
        let of_task: Vec<_> = (0..shards.len())
            .filter(is_of_task)
            .map(|at| &shards[at])
            .collect();
        let tokens = |shards: &mut dyn Iterator<Item = &ShardSummary>| -> u64 {
            shards.map(|shard| shard.tokens).sum()
        };
        let total = tokens(&mut of_task.iter().map(|(_, shard)| shard));
        let is_done = |(sample, shard): &&&(&Sample, ShardSummary)| {
            SampleFolder::new(self, sample).is_embedded(shard)
        };
        let done = tokens(&mut of_task.iter().filter(is_done).map(|(_, shard)| shard));
        let mut progress =
            ProgressDisplay::start(ProgressMode::Plain, self.args.common.quiet, "tokens", total)
                .resumed_at(done);
        let mut failed: BTreeSet<&str> = BTreeSet::new();
        for (at, (sample, shard)) in of_task.iter().enumerate() {
            self.programs.go_on()?;
            let folder = SampleFolder::new(self, sample);
            if failed.contains(&*sample.name) || folder.is_embedded(shard) {
                continue;
            }
            if of_task.len() > 1 {
                let (name, number, count) = (name_of(shard), at + 1, of_task.len());
                tracing::info!("{}: {name}, {number} of {count} shards", sample.name);
            }
            let exit = folder.embed(shard)?;
            if !failures.go_on_after("gpu-embed", exit)? {
                failed.insert(&sample.name);
            }
            progress.advance(shard.tokens);
        }
        progress.finish();
        Ok(())
    }

    /// Validates every sample that is cut, and writes the summary.
    fn finish(&self, failures: &mut Failures) -> Result<(), Fault> {
        let mut summary = Summary::new(&self.args.out, self.args.allow_empty);
        for sample in &self.samples {
            self.programs.go_on()?;
            let folder = SampleFolder::new(self, sample);
            let mut is_judged = false;
            if folder.is_cut() {
                let exit = folder.validate()?;
                failures.go_on_after("validate-embeddings", exit)?;
                is_judged = exit == Exit::Done || exit == Exit::Negative;
            }
            summary.add(&sample.name, is_judged)?;
        }
        let fine = summary.finish()?;
        self.versions
            .write(&self.args.out, &self.model, &self.programs)?;
        if fine {
            Params::confirm(&self.args.out)?;
        } else {
            failures.0.get_or_insert(Exit::Negative);
        }
        Ok(())
    }

    /// The file with the measured size of a batch.
    pub(crate) fn batch_size_file(&self) -> PathBuf {
        self.args.out.join("batch-size.json")
    }

    /// Measures how many tokens a batch holds, on the GPU of this machine, once in a run, which begins with versions.yml. gpu-embed
    /// keeps a size of the same model, options, GPU and version, and measures any other again.
    pub(crate) fn measure_batch_size(&self) -> Result<Exit, Fault> {
        let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
        let measured = changed(&self.batch_size_file());
        if measured.is_some() && measured > changed(&self.args.out.join(VERSIONS_FILE)) {
            return Ok(Exit::Done);
        }
        let file = path_text(&self.batch_size_file());
        let mut arguments: Vec<String> = [
            "--probe",
            "--out",
            &file,
            "--model",
            &self.model.name,
            "--wait",
        ]
        .map(str::to_owned)
        .to_vec();
        let words = self.options.gpu_embed.words.iter();
        arguments.extend(
            words
                .filter(|word| !["--force", "--wait"].contains(&&***word))
                .cloned(),
        );
        arguments.push("--force".to_owned());
        let exit = self.programs.run("gpu-embed", arguments)?;
        if exit == Exit::Done {
            let touched = File::options().write(true).open(self.batch_size_file());
            let touched = touched.and_then(|file| file.set_modified(SystemTime::now()));
            touched.map_err(StoreError::cannot_write(&self.batch_size_file()))?;
        }
        Ok(exit)
    }
}

impl Failures {
    /// Whether the sample goes on. A failure of the sample alone (a verdict, its data, an output of its own) does not end the run;
    /// any other does, since it would meet the next sample too.
    fn go_on_after(&mut self, program: &str, exit: Exit) -> Result<bool, Fault> {
        match exit {
            Exit::Done => Ok(true),
            Exit::Negative | Exit::Data | Exit::NoInput | Exit::CannotCreate => {
                self.0.get_or_insert(exit);
                Ok(false)
            }
            exit => Err(Fault::new(
                exit,
                format!("ended after {program}, see above; run the same command to resume"),
            )),
        }
    }
}
