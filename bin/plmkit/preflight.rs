//! All that can be refused, before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, Stop, resolved};
use plmkit_contract::{BatchSize, DATASET_FILE, ListedDataset, Manifest, Outputs};
use plmkit_dataset::{SUMMARY_FILE, SUMMARY_HEADER, dataset_folder};
use plmkit_engine::Windows;
use plmkit_esm2::{ComputeOptions, check_widths};
use plmkit_kit::{path_text, plural};
use plmkit_programs::fasta_shard;
use plmkit_programs::gpu_embed::Session;
use plmkit_sequence::{Limits, LongPolicy, ShardConfig};
use plmkit_store::{FileKind, files_in, open_input, read_input, read_sealed};

use crate::args::{Args, Stage};
use crate::fasta::head;
use crate::finished;
use crate::layout::{BATCH_SIZE_FILE, MANIFEST, PAGE, VERSIONS_FILE, params_file};
use crate::model;
use crate::params::{Params, embeddings, provenance, replaces_embeddings, samples_with_embeddings};
use crate::programs::Programs;
use crate::run::Run;
use crate::samples::{Sample, samples};

/// The extensions of the files of a sample.
const OF_SAMPLES: [&str; 6] = ["arrow", "csv", "html", "json", "jsonl", "parquet"];

impl Run {
    /// Checks all that can be refused, and tells all errors at once. Returns the model, too, unless it is still to be fetched.
    pub(crate) fn checked(args: Args, stop: &Stop) -> Result<(Self, Option<Session>), Fault> {
        let mut errors = Vec::new();
        let programs = Programs::new(&args);
        let records = &args.fasta_shard.records;
        let is_nucleic = records.translate.is_some();
        let limits = Limits::of(is_nucleic, records.drop_blanks, records.pir);
        let limits = args.is_start().then_some(limits);
        let samples = samples(&args.inputs, limits, args.allow_empty, stop, &mut errors);
        let reference = args.validate_embeddings.reference.as_ref();
        let opened = reference.map(|path| open_input(path));
        errors.extend(opened.and_then(Result::err).map(Fault::from));
        if args.out.exists() && !args.out.is_dir() {
            let what = "expected a folder, found a file";
            errors.push(Fault::of_path(Exit::CannotCreate, &args.out, what));
        }
        refuse_foreign_files(&args.out, &samples, &mut errors);
        refuse_shared_folders(&args.out, &samples, &mut errors);
        check_options(&programs, &args, &samples, &mut errors);
        if args.is_start() {
            refuse_different_sharding(&args.out, &programs, &samples, &mut errors);
        }
        let mut unavailable = None;
        let opened = model::open(&programs.model_args(args.stage), false, stop).or_else(|fault| {
            let may_be_complete = match fault.exit() {
                Exit::Unavailable => embeddings(&args.out).next().is_some(),
                // Another device has computed in the type.
                Exit::Usage => has_type(&args.out, programs.gpu_embed.compute()),
                _ => false,
            };
            if args.stage.is_some() || !may_be_complete {
                return Err(fault);
            }
            // What is complete needs no device.
            unavailable = Some(fault);
            model::open(&programs.model_args(Some(Stage::Finish)), false, stop)
        });
        let mut session = unless_wrong(opened, &mut errors);
        let force = args.force;
        if let Some(Some(session)) = &mut session
            && force
            && !matches!(args.stage, Some(Stage::Prepare | Stage::Finish))
        {
            session.pin_device_and_type();
        }
        let out = &args.out;
        let opened = session.as_ref().and_then(Option::as_ref);
        let model = opened.map(|session| &session.engine().info().checkpoint);
        let parameters = model.map(|model| programs.settings(&model.digest));
        let finished = parameters.as_ref().filter(|_| !force && !args.verify);
        let finished = finished
            .map(|parameters| finished::finished(parameters, out, &samples, &programs))
            .unwrap_or_default();
        let replaces = session.as_ref().and_then(|session| {
            unless_wrong(check_known(&programs, session.as_ref()), &mut errors);
            unless_wrong(check_type(&args, &programs, session.as_ref()), &mut errors);
            let replaces = replaces_embeddings(
                out,
                &programs,
                session.as_ref(),
                &samples,
                &finished,
                args.stage,
                force,
            );
            unless_wrong(replaces, &mut errors)
        });
        if replaces == Some(true) {
            refuse_other_samples(&args, &samples, &mut errors);
        }
        let (Some(session), Some(replaces_embeddings), true) =
            (session, replaces, errors.is_empty())
        else {
            return Err(report(errors));
        };
        let run = Self {
            args,
            programs,
            replaces_embeddings,
            parameters: parameters.unwrap_or_default(),
            finished,
            samples,
            unavailable,
            stop: stop.clone(),
        };
        Ok((run, session))
    }
}

/// The value, if there is one. An error is kept with the others.
fn unless_wrong<T>(result: Result<T, Fault>, errors: &mut Vec<Fault>) -> Option<T> {
    result.map_err(|fault| errors.push(fault)).ok()
}

/// Whether a folder has embeddings in the type that is asked for, which some device of the kind computes.
fn has_type(out: &Path, asked: ComputeOptions) -> bool {
    let dtype = asked.dtype.map(|dtype| dtype.to_string());
    let has = |path: PathBuf| {
        provenance(&path).is_some_and(|found| found.text_option("dtype") == dtype.as_deref())
    };
    dtype.is_some() && asked.check_kind().is_ok() && embeddings(out).any(has)
}

/// Refuses a run with `--force` that would leave other samples of the folder with embeddings of the old settings.
fn refuse_other_samples(args: &Args, samples: &[Sample], errors: &mut Vec<Fault>) {
    let others: Vec<String> = other_samples(&args.out, samples).collect();
    if !others.is_empty() {
        let what = format!(
            "--force replaces embeddings of all samples of a folder: expected these in the command as well, or another folder: {}",
            others.join(" ")
        );
        errors.push(Fault::of_path(Exit::CannotCreate, &args.out, what));
    }
}

/// The samples in a folder of results that have embeddings, and are not in the command.
fn other_samples<'a>(out: &Path, samples: &'a [Sample]) -> impl Iterator<Item = String> + use<'a> {
    let found = samples_with_embeddings(out).into_iter();
    found.filter(|name| !samples.iter().any(|sample| sample.name == *name))
}

/// Refuses samples beside others that were cut otherwise: all of a folder are one table.
fn refuse_different_sharding(
    out: &Path,
    programs: &Programs,
    samples: &[Sample],
    errors: &mut Vec<Fault>,
) {
    // Wrong options are told already.
    let first = samples
        .first()
        .map(|sample| programs.shard_args(out, &sample.name));
    let Some(Ok(config)) = first.map(ShardConfig::try_from) else {
        return;
    };
    errors.extend(other_samples(out, samples).filter_map(|name| {
        let path = out.join(&name);
        let manifest: Manifest = read_sealed(&path.join(MANIFEST)).ok()?;
        let difference = config.residue_difference(&manifest.options)?;
        let what = format!(
            "{difference}: expected the same for all samples of a folder, or another folder"
        );
        Some(Fault::of_path(Exit::CannotCreate, &path, what))
    }));
}

/// Refuses a folder with files of somebody else at the places of results.
fn refuse_foreign_files(out: &Path, samples: &[Sample], errors: &mut Vec<Fault>) {
    // If a sample here has a manifest of plmkit, a damaged file with the name of a result is plmkit's, too, and may be replaced.
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
    let (page, size, params) = (out.join(PAGE), out.join(BATCH_SIZE_FILE), params_file(out));
    let is_zeros = || page.is_file() && head(&page).iter().all(|&byte| byte == 0);
    let is_page = FileKind::detect(&page) == Some(FileKind::Report) || is_zeros();
    let is_size = read_sealed::<BatchSize>(&size).is_ok();
    let has_run = Params::read(out).is_some();
    let of_results = [
        has(SUMMARY_FILE, SUMMARY_HEADER),
        has(VERSIONS_FILE, "plmkit"),
        or_file(page, false, is_page),
        or_file(size, is_ours, is_size),
        or_file(params, is_ours, has_run),
    ];
    let mut around = [Some(out), out.parent()].into_iter().flatten();
    if let Some(sample) = around.find(|sample| sample.join(MANIFEST).exists()) {
        let sample = path_text(sample);
        let what = format!("in the folder of a sample, {sample}: expected another folder");
        errors.push(Fault::of_path(Exit::CannotCreate, out, what));
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
            .flat_map(|name| files_in(&folder.join(name), &OF_SAMPLES).unwrap_or_default());
        let others = others.filter(|path| FileKind::detect(path).is_none());
        let others: Vec<_> = others.map(|path| (path, false)).collect();
        let files = [or_file(dataset, is_cut, is_dataset), (folder, is_folder)];
        files.into_iter().chain(others)
    });
    for (path, is_own) in of_results.into_iter().chain(of_samples) {
        if !is_own {
            let what = "not a file of plmkit, which would replace it: expected another folder";
            errors.push(Fault::of_path(Exit::CannotCreate, &path, what));
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
            let what = format_args!("the folder of sample '{other}', too");
            errors.push(Fault::of_path(Exit::CannotCreate, &folder, what));
        }
    }
}

/// Checks what the options of the programs say together, and what fasta-shard says of shards that are there.
fn check_options(programs: &Programs, args: &Args, samples: &[Sample], errors: &mut Vec<Fault>) {
    let (embed, validate) = (&programs.gpu_embed, &programs.validate_embeddings);
    // A sample that is cut stands for all, which have the same options.
    let is_cut = |sample: &&Sample| args.out.join(&sample.name).join(MANIFEST).exists();
    let cut_before = samples.iter().find(is_cut);
    let sample = cut_before.or(samples.first());
    let mut cut = programs.shard_args(&args.out, sample.map_or("sample", |sample| &sample.name));
    cut.inputs = vec!["-".into()];
    // A later stage goes on with the shards of the first.
    cut.force = args.force && args.is_start();
    let at_start = |fault: Fault| {
        let hint = ["--force replaces it", "--stage prepare --force replaces it"];
        fault.reworded(|message| message.replace(hint[0], hint[usize::from(!args.is_start())]))
    };
    unless_wrong(fasta_shard::check(&cut).map_err(at_start), errors);
    let told = errors.len();
    refuse_places(programs, &args.out, samples, errors);
    if errors.len() == told {
        unless_wrong(validate.check(), errors);
    }
    if args.stage == Some(Stage::Prepare) {
        unless_wrong(embed.compute().check_kind().map_err(Fault::from), errors);
    }
    if cut.options.long.long_policy == LongPolicy::Window
        && embed.options.windows != Windows::Separate
        && Outputs::from(embed.options.outputs.clone()).contacts
    {
        errors.push(Fault::usage(
            "--contacts: the windows of a protein have no contacts in common; expected --windows separate with --long-policy window",
        ));
    }
    let of_one = [
        ("--report", &validate.options.report),
        ("--html", &validate.options.html),
        ("--reference", &validate.options.reference),
    ];
    for (option, path) in of_one {
        if samples.len() > 1 && path.is_some() {
            let what = "expected one sample: those of several would have one file";
            errors.push(Fault::usage(format!("{option}: {what}")));
        }
    }
}

/// Refuses reports among the results, and checkpoints among those of a sample.
fn refuse_places(programs: &Programs, out: &Path, samples: &[Sample], errors: &mut Vec<Fault>) {
    let is_in = |path: &Path, folder: &Path| resolved(path).starts_with(resolved(folder));
    let validate = &programs.validate_embeddings.options;
    for report in [&validate.report, &validate.html].into_iter().flatten() {
        if report != "-" && is_in(report, out) {
            let what = "among the results: expected a place outside of --out";
            errors.push(Fault::of_path(Exit::Usage, report, what));
        }
    }
    let Some(saved) = &programs.gpu_embed.options.checkpoint_dir else {
        return;
    };
    let mut folders = samples.iter().map(|sample| out.join(&sample.name));
    let what = if saved.exists() && !saved.is_dir() {
        "expected a folder for --checkpoint-dir, found a file"
    } else if folders.any(|folder| is_in(saved, &folder)) {
        "among the results of a sample: expected another place for --checkpoint-dir"
    } else {
        return;
    };
    errors.push(Fault::of_path(Exit::Usage, saved, what));
}

/// Refuses a model that is not multiplied in the type that is asked for, whatever the device of a later stage is.
fn check_type(args: &Args, programs: &Programs, session: Option<&Session>) -> Result<(), Fault> {
    let asked = programs.gpu_embed.options.computation.dtype;
    let Some((session, dtype)) = session.zip(asked) else {
        return Ok(());
    };
    let config = session.engine().info().config();
    Ok(check_widths(Path::new(&args.model), config, dtype)?)
}

/// Refuses known datasets of another model, or whose vectors were made otherwise.
fn check_known(programs: &Programs, session: Option<&Session>) -> Result<(), Fault> {
    let Some(session) = session else {
        return Ok(());
    };
    let own = &session.engine().info().checkpoint.digest;
    for path in &programs.fasta_shard.options.known {
        let file = dataset_folder(path.clone()).join(DATASET_FILE);
        // What else is wrong with it, fasta-shard tells.
        let Ok(found) = read_sealed::<ListedDataset>(&file) else {
            continue;
        };
        let Some(model) = &found.model_digest else {
            continue;
        };
        let what = if model == own {
            let difference = session.engine().known_difference(&found.work());
            difference.map(|what| format!("--known: its embeddings were made otherwise: {what}"))
        } else {
            let what = "expected embeddings of this model";
            Some(format!("--known: {what}, {own}, found {model}"))
        };
        if let Some(what) = what {
            return Err(Fault::of_path(Exit::Data, &file, what));
        }
    }
    Ok(())
}

/// Logs the errors, if there are several. The exit code of the run is that of the first.
pub(crate) fn report(mut errors: Vec<Fault>) -> Fault {
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
