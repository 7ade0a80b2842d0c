//! The options of each program: the common ones of this command line, then those that are passed on.

use std::path::Path;

use plmkit_cli::{Fault, Program, parse};
use plmkit_esm2::Device;
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};
use plmkit_store::open_input;

use crate::args::{Args, Stage};
use crate::layout::digests_file;

/// The options of the four programs that have some.
pub(crate) struct Options {
    pub(crate) fasta_shard: fasta_shard::Args,
    pub(crate) pack_batches: pack_batches::Args,
    /// Whether the options say how large a batch is.
    pub(crate) has_batch_size: bool,
    pub(crate) gpu_embed: gpu_embed::Args,
    pub(crate) validate_embeddings: validate_embeddings::Args,
    pub(crate) words: Words,
}

/// The words of the options of each program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) fasta_shard: Vec<String>,
    pub(crate) pack_batches: Vec<String>,
    pub(crate) gpu_embed: Vec<String>,
    pub(crate) validate_embeddings: Vec<String>,
}

impl Options {
    /// Parses the options as the programs do. All that is wrong is in `errors`.
    pub(crate) fn new(args: &Args, errors: &mut Vec<Fault>) -> Result<Option<Self>, Fault> {
        let words = Words::new(args)?;
        let tokens = args.max_shard_tokens.to_string();
        // What plmkit names itself has a place here: given twice, it is refused.
        let required = [
            "--max-shard-tokens",
            &tokens,
            "--sample",
            "x",
            "--out",
            "x",
            "-",
        ];
        let fasta_shard = parsed::<fasta_shard::Args>(&words.fasta_shard, &required, errors);
        let fasta_shard = fasta_shard.filter(|parsed| match &parsed.inputs[..] {
            [more, _, ..] => {
                let what = format!("fasta-shard: expected options, found '{}'", more.display());
                errors.push(Fault::usage(what));
                false
            }
            _ => true,
        });
        let has = |name: &str| {
            let mut words = words.pack_batches.iter();
            words.any(|word| word.split('=').next() == Some(name))
        };
        let has_batch_size = has("--max-batch-tokens");
        let required = ["x", "--out", "x", "--batch-size", "x"];
        let required = &required[..if has_batch_size { 3 } else { 5 }];
        let pack_batches = parsed(&words.pack_batches, required, errors);
        let model = format!("--model={}", args.model);
        // After a switch that takes a value or none, an option.
        let required = [&model, "--out=x", "--events=x", "--rejects=x", "x"];
        let gpu_embed = parsed(&words.gpu_embed, &required, errors);
        let required = [&model, "--dataset=x", "--mqc=x"];
        let validate_embeddings =
            parsed::<validate_embeddings::Args>(&words.validate_embeddings, &required, errors);
        let reference = validate_embeddings
            .as_ref()
            .and_then(|own| own.reference.as_ref());
        let opened = reference.map(|path| open_input(path));
        errors.extend(opened.and_then(Result::err).map(Fault::from));
        let all = || {
            Some(Self {
                fasta_shard: fasta_shard?,
                pack_batches: pack_batches?,
                has_batch_size,
                gpu_embed: gpu_embed?,
                validate_embeddings: validate_embeddings?,
                words,
            })
        };
        Ok(all())
    }

    /// Adds what plmkit itself says.
    pub(crate) fn complete(&mut self, args: &Args) {
        self.fasta_shard.allow_empty |= args.allow_empty;
        self.validate_embeddings.allow_empty |= args.allow_empty;
        self.gpu_embed.digests = Some(digests_file(&args.out));
        self.gpu_embed.common = args.common.clone();
    }

    /// The kind of device that is asked for, as embeddings name it.
    pub(crate) fn asked_device(&self) -> Option<String> {
        let kind = match self.gpu_embed.device {
            Device::Auto => return None,
            Device::Cpu => "cpu",
            _ => "cuda",
        };
        Some(kind.to_owned())
    }

    /// The options for the model of a stage: one that computes nothing may run where the device is not.
    pub(crate) fn model_args(&self, stage: Option<Stage>) -> gpu_embed::Args {
        let mut args = self.gpu_embed.clone();
        if !matches!(stage, None | Some(Stage::Embed)) {
            (args.device, args.dtype) = (Device::Auto, None);
        } else if args.device == Device::All {
            args.device = Device::Cuda(0);
        }
        args
    }

    /// The options of fasta-shard for a sample.
    pub(crate) fn shard_args(&self, out: &Path, sample: &str) -> fasta_shard::Args {
        let mut options = self.fasta_shard.clone();
        options.sample = Some(sample.to_owned());
        options.out = out.join(sample).join("shards");
        options
    }
}

impl Words {
    fn new(args: &Args) -> Result<Self, Fault> {
        let (passed, mut all) = (&args.passed, Self::default());
        let cut = &mut all.fasta_shard;
        flag(cut, "--dedup", args.dedup);
        value(cut, "--long-policy", args.windows.then_some("window"));
        value(cut, "--translate", args.translate.as_deref());
        for known in &args.known {
            cut.push(format!("--known={known}"));
        }
        let embed = &mut all.gpu_embed;
        value(embed, "--device", args.device.as_deref());
        value(embed, "--dtype", args.dtype.as_deref());
        value(embed, "--pool", args.pool.as_deref());
        value(embed, "--layers", args.layers.as_deref());
        flag(embed, "--residues", args.residues);
        flag(embed, "--download", args.download);
        let validate = &mut all.validate_embeddings;
        for words in [&mut *cut, &mut *embed, &mut *validate] {
            value(words, "--threads", args.threads.as_deref());
        }
        cut.extend(split("--fasta-shard", passed.fasta_shard.as_deref())?);
        let pack = passed.pack_batches.as_deref();
        all.pack_batches.extend(split("--pack-batches", pack)?);
        embed.extend(split("--gpu-embed", passed.gpu_embed.as_deref())?);
        let passed = passed.validate_embeddings.as_deref();
        validate.extend(split("--validate-embeddings", passed)?);
        Ok(all)
    }
}

/// The words on one line, quoted as a shell reads them.
pub(crate) fn text(words: &[String]) -> String {
    // A NUL cannot be in an argument.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

fn flag(words: &mut Vec<String>, name: &str, is_set: bool) {
    words.extend(is_set.then(|| name.to_owned()));
}

fn value(words: &mut Vec<String>, name: &str, value: Option<&str>) {
    words.extend(
        value
            .into_iter()
            .flat_map(|value| [name.to_owned(), value.to_owned()]),
    );
}

/// The options of `fasta-shard` for a command that needs each record: none that leaves out some.
pub(crate) fn of_records(text: Option<&str>) -> Result<Vec<String>, Fault> {
    let words = split("--fasta-shard", text)?;
    let leaves_out = |word: &&String| word.starts_with("--dedup") || word.starts_with("--known");
    match words.iter().find(leaves_out) {
        Some(word) => Err(Fault::usage(format!(
            "--fasta-shard: {word} leaves out records, and each is needed here"
        ))),
        None => Ok(words),
    }
}

/// Splits the value of `option`, which passes options on.
pub(crate) fn split(option: &str, text: Option<&str>) -> Result<Vec<String>, Fault> {
    let text = text.unwrap_or_default();
    let words = shlex::split(text).ok_or_else(|| {
        Fault::usage(format!(
            "{option} '{text}': expected words as in a shell, found a quote without its end"
        ))
    })?;
    let mut asked = words.iter().map(String::as_str);
    match asked.find(|word| ["-h", "--help", "-V", "--version"].contains(word)) {
        None => Ok(words),
        Some(help) => {
            let program = option.trim_start_matches('-');
            Err(Fault::usage(format!(
                "{option}: {help} is no option of a run; {program} --help lists its options"
            )))
        }
    }
}

/// Parses the command line of a program.
fn parsed<P: Program>(words: &[String], required: &[&str], errors: &mut Vec<Fault>) -> Option<P> {
    let required = required.iter().map(|&word| word.to_owned());
    let words: Vec<String> = words.iter().cloned().chain(required).collect();
    parse(&words).map_err(|fault| errors.push(fault)).ok()
}
