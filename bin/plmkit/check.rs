//! All that can be refused, before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{BatchSize, DATASET_FILE, ListedDataset, Manifest, path_text, plural};
use plmkit_dataset::{SUMMARY_FILE, SUMMARY_HEADER, dataset_folder};
use plmkit_sequence::Limits;
use plmkit_store::{files_in, open_input, read_id_values, read_input, read_sealed};

use crate::args::{Args, Stage};
use crate::fasta::Look;
use crate::model::Model;
use crate::options::{AllOptions, ProgramOptions};
use crate::params::{Existing, Params, embeddings, samples_with_embeddings};
use crate::plan::{Sample, samples};
use crate::programs::Programs;
use crate::run::{BATCH_SIZE_FILE, Run};
use crate::sample::MANIFEST;
use crate::versions::{VERSIONS_FILE, Versions};

/// The extensions of the files of a sample.
const OF_SAMPLES: [&str; 6] = ["arrow", "csv", "html", "json", "jsonl", "parquet"];

impl Run {
    /// Checks all that can be refused, and tells all errors at once.
    pub(crate) fn checked(args: Args, stop: &Stop) -> Result<Self, Fault> {
        let mut errors = Vec::new();
        let options = AllOptions::new(&args)?;
        let is_start = matches!(args.stage, None | Some(Stage::Prepare));
        let has = |name| options.fasta_shard.has(name);
        let look = is_start.then(|| Look {
            limits: Limits::of(has("--translate"), has("--drop-blanks"), has("--pir")),
            allow_empty: args.allow_empty || has("--allow-empty"),
        });
        let programs = Programs::new(args.common.log_format, args.common.quiet, stop);
        let samples = samples(&args.inputs, look, stop, &mut errors);
        let model = Model::look_at(&args.model, options.gpu_embed.has("--download"), stop);
        let model = unless_wrong(model, &mut errors);
        let versions = Versions::ask(&programs)?;
        check_options(&programs, &options, (&args, &samples), &mut errors);
        if args.out.exists() && !args.out.is_dir() {
            let what = format!("{}: expected a folder, found a file", path_text(&args.out));
            errors.push(Fault::new(Exit::CannotCreate, what));
        }
        refuse_foreign_files(&args.out, &samples, &mut errors);
        refuse_shared_folders(&args.out, &samples, &mut errors);
        refuse_contacts_of_windows(&options, &mut errors);
        refuse_shared_reports(&options, &samples, &mut errors);
        for path in options.gpu_embed.values("--scores-positions") {
            let positions = read_id_values(path.as_ref(), "position");
            unless_wrong(positions.map_err(Fault::from), &mut errors);
        }
        for path in options.validate_embeddings.values("--reference") {
            let opened = open_input(path.as_ref());
            unless_wrong(opened.map_err(Fault::from), &mut errors);
        }
        if let Some(model) = &model {
            unless_wrong(check_known(&options, model, stop), &mut errors);
        }
        let force = args.force || options.gpu_embed.has("--force");
        let embedded = embeddings(&args.out).collect();
        let compare =
            |model| Params::compare(&args.out, &options, model, args.stage, (force, stop));
        let existing = model.as_ref().map(compare);
        let existing = existing.and_then(|existing| unless_wrong(existing, &mut errors));
        if existing == Some(Existing::Replaced) {
            refuse_other_samples(&args, &samples, &mut errors);
        }
        let (Some(model), Some(existing), true) = (model, existing, errors.is_empty()) else {
            return Err(report(errors));
        };
        Ok(Self {
            args,
            programs,
            options,
            model,
            existing,
            embedded,
            samples,
            versions,
        })
    }
}

/// The value, if there is one. An error is kept with the others.
fn unless_wrong<T>(result: Result<T, Fault>, errors: &mut Vec<Fault>) -> Option<T> {
    result.map_err(|fault| errors.push(fault)).ok()
}

/// Refuses a run with `--force` that would leave other samples of the folder with embeddings of the old settings.
fn refuse_other_samples(args: &Args, samples: &[Sample], errors: &mut Vec<Fault>) {
    let is_other = |name: &String| !samples.iter().any(|sample| sample.name == *name);
    let others = samples_with_embeddings(&args.out).into_iter();
    let others: Vec<String> = others.filter(is_other).collect();
    if !others.is_empty() {
        let (out, others) = (path_text(&args.out), others.join(" "));
        let what = format!(
            "{out}: --force replaces embeddings of all samples of a folder: expected these in the command as well, or another folder: {others}"
        );
        errors.push(Fault::new(Exit::CannotCreate, what));
    }
}

/// Refuses a folder with files of somebody else at the places of results.
fn refuse_foreign_files(out: &Path, samples: &[Sample], errors: &mut Vec<Fault>) {
    // Beside shards of ours, files of ours may be damaged, and are written again.
    let is_cut =
        |sample: &Sample| read_sealed::<Manifest>(&out.join(&sample.name).join(MANIFEST)).is_ok();
    let is_ours = samples.iter().any(is_cut);
    // What is no file, such as a pipe or a link to nothing, could not be replaced.
    let or_file = |path: PathBuf, may_be_ours: bool, is_own: bool| {
        let is_own = match path.symlink_metadata() {
            // A damaged file of ours is replaced, but not what a link leads to.
            Ok(found) => is_own || may_be_ours && found.is_file(),
            Err(_) => true,
        };
        (path, is_own)
    };
    let has = |name: &str, text: &str| {
        let path = out.join(name);
        let found = read_input(&path).unwrap_or_default();
        let is_own = String::from_utf8_lossy(&found).contains(text);
        or_file(path, is_ours, is_own)
    };
    let (size, params) = (out.join(BATCH_SIZE_FILE), Params::file(out));
    let is_size = read_sealed::<BatchSize>(&size).is_ok();
    let has_run = Params::read(out).is_some();
    let of_results = [
        has(SUMMARY_FILE, SUMMARY_HEADER),
        has(VERSIONS_FILE, "plmkit"),
        or_file(size, is_ours, is_size),
        or_file(params, is_ours, has_run),
    ];
    let mut around = [Some(out), out.parent()].into_iter().flatten();
    if let Some(sample) = around.find(|sample| sample.join(MANIFEST).exists()) {
        let what = format!(
            "{}: in the folder of a sample, {}: expected another folder",
            path_text(out),
            path_text(sample)
        );
        errors.push(Fault::new(Exit::CannotCreate, what));
    }
    let of_samples = samples.iter().flat_map(|sample| {
        let (folder, is_cut) = (out.join(&sample.name), is_cut(sample));
        let dataset = folder.join(DATASET_FILE);
        let is_dataset = read_sealed::<ListedDataset>(&dataset).is_ok();
        let is_folder = folder.is_dir() || !folder.exists();
        // Folders of results have files of ours, perhaps very many.
        let names: &[&str] = if has_run || is_cut {
            &[]
        } else {
            &["shards", "batches", "embeddings", "reports", "logs"]
        };
        let others = names
            .iter()
            .map(|name| files_in(&folder.join(name), &OF_SAMPLES).unwrap_or_default());
        let others: Vec<_> = others.flatten().map(|path| (path, false)).collect();
        let files = [or_file(dataset, is_cut, is_dataset), (folder, is_folder)];
        files.into_iter().chain(others)
    });
    for (path, is_own) in of_results.into_iter().chain(of_samples) {
        if !is_own {
            let what = "not a file of plmkit, which would replace it: expected another folder";
            let what = format!("{}: {what}", path_text(&path));
            errors.push(Fault::new(Exit::CannotCreate, what));
        }
    }
}

/// Refuses samples whose folders are one, by a link.
fn refuse_shared_folders(out: &Path, samples: &[Sample], errors: &mut Vec<Fault>) {
    let mut owners = BTreeMap::new();
    for sample in samples {
        let folder = out.join(&sample.name);
        let other = folder.canonicalize().ok();
        if let Some(other) = other.and_then(|real| owners.insert(real, &sample.name)) {
            let what = format!(
                "{}: the folder of sample '{other}', too",
                path_text(&folder)
            );
            errors.push(Fault::new(Exit::CannotCreate, what));
        }
    }
}

/// Refuses contacts of proteins that are stitched, which gpu-embed refuses when it sees the first.
fn refuse_contacts_of_windows(options: &AllOptions, errors: &mut Vec<Fault>) {
    let last = |options: &ProgramOptions, name| options.values(name).last().map(str::to_owned);
    let are_cut = last(&options.fasta_shard, "--long-policy").as_deref() == Some("window");
    let are_separate = last(&options.gpu_embed, "--windows").as_deref() == Some("separate");
    if are_cut && !are_separate && options.gpu_embed.has("--contacts") {
        errors.push(Fault::usage(
            "--contacts: the windows of a protein have no contacts in common; expected --gpu-embed \"--windows separate\" with --windows",
        ));
    }
}

/// Refuses the name of a report that samples would share.
fn refuse_shared_reports(options: &AllOptions, samples: &[Sample], errors: &mut Vec<Fault>) {
    for option in ["--report", "--html"] {
        if samples.len() > 1 && options.validate_embeddings.has(option) {
            let what = "expected one sample: those of several would have one file";
            let what = format!("--validate-embeddings \"{option}\": {what}");
            errors.push(Fault::usage(what));
        }
    }
}

/// Refuses known datasets of another model.
fn check_known(options: &AllOptions, model: &Model, stop: &Stop) -> Result<(), Fault> {
    let known: Vec<&str> = options.fasta_shard.values("--known").collect();
    if known.is_empty() {
        return Ok(());
    }
    let digests = model.digests(stop)?;
    let Some(own) = digests.as_ref().and_then(|digests| digests.get("model")) else {
        return Ok(());
    };
    for path in known {
        let file = dataset_folder(path.into()).join(DATASET_FILE);
        // What else is wrong with it, fasta-shard tells.
        let Ok(found) = read_sealed::<ListedDataset>(&file) else {
            continue;
        };
        if let Some(other) = found.model_digest.filter(|found| found != own) {
            let file = path_text(&file);
            let what =
                format!("{file}: --known: expected embeddings of this model, {own}, found {other}");
            return Err(Fault::new(Exit::Data, what));
        }
    }
    Ok(())
}

/// Asks each program whether it takes its options; of fasta-shard also whether a sample was cut with others.
fn check_options(
    programs: &Programs,
    options: &AllOptions,
    (args, samples): (&Args, &[Sample]),
    errors: &mut Vec<Fault>,
) {
    let tokens = args.max_shard_tokens.to_string();
    // A sample that is cut stands for all, which have the same options.
    let cut = samples.iter().map(|sample| {
        let shards = args.out.join(&sample.name).join("shards");
        (sample, shards)
    });
    let mut cut = cut.filter(|(_, shards)| shards.join("manifest.json").exists());
    let mut fasta_shard = vec!["--max-shard-tokens".to_owned(), tokens, "-".to_owned()];
    let (mut name, mut shards) = ("sample", PathBuf::from("shards"));
    if let Some((sample, folder)) = cut.next() {
        (name, shards) = (&sample.name, folder);
    }
    fasta_shard.extend(["--sample".to_owned(), name.to_owned()]);
    fasta_shard.extend(["--out".to_owned(), path_text(&shards)]);
    if args.force && !options.fasta_shard.has("--force") {
        fasta_shard.push("--force".to_owned());
    }
    let model = &args.model;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let with_model = |text: &str| {
        let mut words = words(text);
        words.push(format!("--model={model}"));
        words
    };
    for (program, own, required) in [
        ("fasta-shard", &options.fasta_shard, fasta_shard),
        (
            "pack-batches",
            &options.pack_batches,
            words(if options.pack_batches.has("--max-batch-tokens") {
                "shard.parquet --out batches.arrow"
            } else {
                "shard.parquet --out batches.arrow --batch-size size.json"
            }),
        ),
        (
            "gpu-embed",
            &options.gpu_embed,
            // After a switch that takes a value or none, an option.
            with_model("--out e.parquet --events e.jsonl --rejects r.csv batches.arrow"),
        ),
        (
            "validate-embeddings",
            &options.validate_embeddings,
            with_model("--dataset dataset --mqc v.json"),
        ),
    ] {
        let own = own.words.iter().chain(&required);
        let words = ["--check-options"]
            .into_iter()
            .chain(own.map(String::as_str));
        errors.extend(programs.output(program, words).err());
    }
}

/// Logs the errors, if there are several. The exit code of the run is that of the first.
fn report(mut errors: Vec<Fault>) -> Fault {
    if errors.len() == 1 {
        return errors.remove(0);
    }
    for fault in &errors {
        tracing::error!("{}", fault.message());
    }
    let count = plural(errors.len() as u64, "error");
    Fault::new(
        errors[0].exit(),
        format!("{count}, see above; nothing was changed"),
    )
}
