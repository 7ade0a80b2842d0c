//! The stages of a run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plmkit_cli::{Exit, Fault, ProgressDisplay, ProgressMode, Stop, print};
use plmkit_contract::{Manifest, ShardSummary, path_text, plural};
use plmkit_store::{StoreError, read_sealed};

use crate::args::{Args, Stage};
use crate::model::Model;
use crate::options::AllOptions;
use crate::params::{Existing, Params};
use crate::plan::{Look, Sample, samples};
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
    samples: Vec<Sample>,
    versions: Versions,
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
    let mut errors = Vec::new();
    let run = Run::checked(args, stop, &mut errors)?;
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
            run.embed(&cut, task, &mut failures)?;
        }
        Some(Stage::Finish) => run.finish(&mut failures)?,
    }
    Ok(failures.0.unwrap_or(Exit::Done))
}

impl Run {
    /// Checks all that can be refused. Every error but the last is logged, so that all are told at once.
    fn checked(args: Args, stop: &Stop, errors: &mut Vec<Fault>) -> Result<Self, Fault> {
        let options = AllOptions::new(&args)?;
        let look = Look {
            contigs: options.fasta_shard.has("--translate"),
            allow_empty: args.allow_empty,
            records: matches!(args.stage, None | Some(Stage::Prepare)),
        };
        let programs = Programs::new(args.common.log_format, args.common.quiet, stop);
        let samples = samples(&args.inputs, look, stop, errors);
        let model = Model::look_at(&args.model, options.gpu_embed.has("--download"), stop);
        let model = model.map_err(|fault| errors.push(fault)).ok();
        let versions = Versions::ask(&programs)?;
        check_options(&programs, &options, &args, errors);
        let existing = model.as_ref().map(|model| {
            let force = args.force || options.gpu_embed.has("--force");
            Params::compare(&args.out, &options, model, force)
        });
        let existing =
            existing.and_then(|compared| compared.map_err(|fault| errors.push(fault)).ok());
        if !args.force && !options.fasta_shard.has("--force") {
            compare_cuts(&args, &samples, errors);
        }
        let (Some(model), Some(existing), true) = (model, existing, errors.is_empty()) else {
            return Err(first_of(errors));
        };
        Ok(Self {
            args,
            programs,
            options,
            model,
            existing,
            samples,
            versions,
        })
    }

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

    /// Tells what it will cost to embed on GPUs, if nothing is embedded yet. A run without an estimate goes on.
    fn estimate(&self, samples: &[&Sample]) {
        let device = self
            .options
            .gpu_embed
            .values("--device")
            .last()
            .unwrap_or("auto");
        let has_driver = Path::new("/proc/driver/nvidia/version").exists();
        let is_new = |sample: &&&Sample| {
            let folder = SampleFolder::new(self, sample);
            folder.manifest().is_ok_and(|manifest| {
                !manifest
                    .shards
                    .iter()
                    .any(|shard| folder.is_embedded(shard))
            })
        };
        let new: Vec<_> = samples.iter().filter(is_new).collect();
        if new.is_empty() || device == "cpu" || (device == "auto" && !has_driver) {
            return;
        }
        let mut arguments = vec![
            "estimate".to_owned(),
            "--model".to_owned(),
            self.model.name.clone(),
        ];
        for (name, value) in self.options.gpu_embed.options() {
            match name {
                "--pool" | "--layers" | "--store-dtype" => {
                    arguments.extend([name.to_owned(), value.to_owned()]);
                }
                "--dtype" if value != "int8" => {
                    arguments.extend([name.to_owned(), value.to_owned()]);
                }
                "--residues" | "--logits" | "--contacts" => arguments.push(name.to_owned()),
                _ => {}
            }
        }
        arguments.push("--".to_owned());
        let shards = new
            .iter()
            .map(|sample| self.args.out.join(&sample.name).join("shards"));
        arguments.extend(shards.map(|shards| path_text(&shards)));
        match self.programs.output("monitor-log", arguments) {
            Ok(said) => said.lines().for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
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

/// Compares the size of the shards of samples that are cut; fasta-shard compares all other options.
fn compare_cuts(args: &Args, samples: &[Sample], errors: &mut Vec<Fault>) {
    let now = args.max_shard_tokens;
    for sample in samples {
        let folder = args.out.join(&sample.name);
        let manifest = read_sealed::<Manifest>(&folder.join("shards/manifest.json")).ok();
        let was = manifest.and_then(|manifest| manifest.options["max_shard_tokens"].as_u64());
        if let Some(was) = was.filter(|&was| was != now) {
            let folder = path_text(&folder);
            let what = format!(
                "{folder}: was cut with --max-shard-tokens {was}, which is now {now}; expected another folder, or --force, which cuts again"
            );
            errors.push(Fault::new(Exit::CannotCreate, what));
        }
    }
}

/// Asks each program whether it takes its options.
fn check_options(programs: &Programs, options: &AllOptions, args: &Args, errors: &mut Vec<Fault>) {
    let tokens = args.max_shard_tokens.to_string();
    for (program, own, required) in [
        (
            "fasta-shard",
            &options.fasta_shard,
            &[
                "--out",
                "shards",
                "--max-shard-tokens",
                &tokens,
                "input.fasta",
            ][..],
        ),
        (
            "pack-batches",
            &options.pack_batches,
            &["shard.parquet", "--out", "batches.arrow"],
        ),
        (
            "gpu-embed",
            &options.gpu_embed,
            &[
                "batches.arrow",
                "--model",
                &args.model,
                "--out",
                "e.parquet",
            ],
        ),
        (
            "validate-embeddings",
            &options.validate_embeddings,
            &["--dataset", "dataset", "--model", &args.model],
        ),
    ] {
        let words = own.words.iter().map(String::as_str);
        let words = ["--check-options"].into_iter().chain(words);
        if let Err(fault) = programs.output(program, words.chain(required.iter().copied())) {
            errors.push(fault);
        }
    }
}

/// Logs all errors but the first, which becomes that of the run.
fn first_of(errors: &mut Vec<Fault>) -> Fault {
    let first = errors.remove(0);
    if errors.is_empty() {
        return first;
    }
    tracing::error!("{}", first.message());
    for fault in errors.iter() {
        tracing::error!("{}", fault.message());
    }
    let count = plural(errors.len() as u64 + 1, "error");
    Fault::new(
        first.exit(),
        format!("{count}, see above; nothing was changed"),
    )
}
