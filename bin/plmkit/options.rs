//! The options of each program: the common ones of this command line, then those that are passed on.

use std::path::Path;

use plmkit_cli::Fault;

use crate::args::Args;

/// The folder of checkpoints.
const CHECKPOINT_DIR: &str = "--checkpoint-dir";

/// Options that change no value of an embedding.
const NEUTRAL: [&str; 13] = [
    "--kernels",
    "--log-format",
    "--model-name",
    "--prefetch",
    "--report",
    "--force",
    "--quiet",
    "--wait-for-lock",
    "--download",
    "--threads",
    "--progress",
    "--checkpoint-interval",
    CHECKPOINT_DIR,
];

/// Options that say what holds without them. Of the size of a batch, that is so on a CPU; no vector depends on it.
const DEFAULTS: [(&str, &str); 7] = [
    ("--max-batch-tokens", "16384"),
    ("--device", "auto"),
    ("--dtype", "auto"),
    ("--layers", "last"),
    ("--pool", "mean"),
    ("--store-dtype", "f32"),
    ("--windows", "stitch"),
];

/// The options of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramOptions {
    /// The words, as the program gets them.
    pub(crate) words: Vec<String>,
}

/// The options of the four programs that have some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllOptions {
    pub(crate) fasta_shard: ProgramOptions,
    pub(crate) pack_batches: ProgramOptions,
    pub(crate) gpu_embed: ProgramOptions,
    pub(crate) validate_embeddings: ProgramOptions,
}

impl AllOptions {
    pub(crate) fn new(args: &Args) -> Result<Self, Fault> {
        let (passed, threads) = (&args.passed, args.threads.as_deref());
        let mut all = Self::default();
        let cut = &mut all.fasta_shard;
        cut.flag("--dedup", args.dedup);
        cut.value("--long-policy", args.windows.then_some("window"));
        cut.value("--translate", args.translate.as_deref());
        for known in &args.known {
            cut.flag(&format!("--known={known}"), true);
        }
        cut.value("--threads", threads);
        let embed = &mut all.gpu_embed;
        embed.value("--device", args.device.as_deref());
        embed.value("--dtype", args.dtype.as_deref());
        embed.value("--pool", args.pool.as_deref());
        embed.value("--layers", args.layers.as_deref());
        embed.flag("--residues", args.residues);
        embed.flag("--download", args.download);
        embed.value("--threads", threads);
        cut.and("--fasta-shard", passed.fasta_shard.as_deref())?;
        let pack = &mut all.pack_batches;
        pack.and("--pack-batches", passed.pack_batches.as_deref())?;
        embed.and("--gpu-embed", passed.gpu_embed.as_deref())?;
        let (validate, passed) = (&mut all.validate_embeddings, &passed.validate_embeddings);
        validate.value("--threads", threads);
        validate.and("--validate-embeddings", passed.as_deref())?;
        Ok(all)
    }
}

impl ProgramOptions {
    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.words.push(name.to_owned());
        }
    }

    fn value(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.words.extend([name.to_owned(), value.to_owned()]);
        }
    }

    /// Adds the words of `text`, the value of `option` if it is given.
    fn and(&mut self, option: &str, text: Option<&str>) -> Result<(), Fault> {
        let text = text.unwrap_or_default();
        let words = shlex::split(text).ok_or_else(|| {
            Fault::usage(format!(
                "{option} '{text}': expected words as in a shell, found a quote without its end"
            ))
        })?;
        if let Some(help) = words
            .iter()
            .find(|word| ["-h", "--help", "-V", "--version"].contains(&&***word))
        {
            let program = option.trim_start_matches('-');
            return Err(Fault::usage(format!(
                "{option}: {help} is no option of a run; {program} --help lists its options"
            )));
        }
        self.words.extend(words);
        Ok(())
    }

    /// Parses the text of [`text`](Self::text).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words = shlex::split(text)?;
        Some(Self { words })
    }

    /// The words on one line, quoted as a shell reads them.
    pub(crate) fn text(&self) -> String {
        let words = self.words.iter().map(String::as_str);
        // A NUL cannot be in an argument.
        shlex::try_join(words).unwrap_or_default()
    }

    /// The options with a folder of the sample for its checkpoints, which have the names of shards.
    pub(crate) fn of_sample(&self, sample: &str) -> Self {
        let mut words = self.words.clone();
        for (at, word) in words.iter_mut().enumerate() {
            let is_value = at > 0 && self.words[at - 1] == CHECKPOINT_DIR;
            if is_value
                || word
                    .strip_prefix(CHECKPOINT_DIR)
                    .is_some_and(|rest| rest.starts_with('='))
            {
                word.extend(["/", sample]);
            }
        }
        Self { words }
    }

    /// Whether an option is there, as `--name` or `--name=value`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// The values of an option; empty ones of a switch.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options()
            .filter(move |(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// The options and their values, in order.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let words = self.words.iter().enumerate();
        words.filter_map(|(at, word)| {
            if !is_option(word) {
                return None;
            }
            if let Some(parts) = word.split_once('=') {
                return Some(parts);
            }
            let next = self.words.get(at + 1).filter(|next| !is_option(next));
            Some((&**word, next.map_or("", String::as_str)))
        })
    }

    /// The kind of the device and the type of the computation, as embeddings of this machine name them.
    pub(crate) fn computation(&self) -> [&str; 2] {
        let given = |name| self.values(name).last().filter(|value| *value != "auto");
        let has_driver = || Path::new("/proc/driver/nvidia/version").exists();
        let is_on_gpu = given("--device").map_or_else(has_driver, |device| device != "cpu");
        let [device, dtype] = [["cpu", "f32"], ["cuda", "f16"]][usize::from(is_on_gpu)];
        [device, given("--dtype").unwrap_or(dtype)]
    }

    /// The deciding options whose value does not depend on the machine if they are not given.
    pub(crate) fn settled(&self) -> Vec<(&str, &str)> {
        let mut options = self.canonical();
        options.retain(|(name, _)| !["--device", "--dtype"].contains(name));
        options
    }

    /// The options that decide the values of embeddings, on one line.
    pub(crate) fn deciding(&self) -> String {
        let words = self.canonical().into_iter();
        let words = words.flat_map(|(name, value)| [name, value]);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }

    /// The options that decide the values of embeddings, written in one way.
    pub(crate) fn canonical(&self) -> Vec<(&str, &str)> {
        // One of several values is no default.
        let is_default =
            |option: &(&str, &str)| DEFAULTS.contains(option) && self.values(option.0).count() == 1;
        let options = self.options();
        let mut options: Vec<_> = options
            .filter(|option| !NEUTRAL.contains(&option.0) && !is_default(option))
            .collect();
        options.sort_unstable();
        options
    }
}

fn is_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    name.len() < word.len() && name.starts_with(|first: char| first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> ProgramOptions {
        ProgramOptions::parse(text).expect("words")
    }

    #[test]
    fn words_are_those_of_a_shell_and_the_text_gives_them_back() {
        let known = options("--known 'my old/results' --dedup --overlap=5 --known \"it's\"");
        let values: Vec<_> = known.values("--known").collect();
        assert_eq!(values, ["my old/results", "it's"]);
        assert!(known.has("--dedup") && known.has("--overlap") && !known.has("--over"));
        assert_eq!(options(&known.text()), known);
        assert_eq!(ProgramOptions::parse("--known 'x"), None);
        let poolings = |text: &str| options(text).deciding();
        assert_eq!(poolings("--pool mean --dtype auto"), "");
        assert_eq!(poolings("--pool max --pool mean"), "--pool max --pool mean");
        let saved = options("--checkpoint-dir /a --dtype f32 --checkpoint-dir=b");
        let saved = saved.of_sample("s");
        assert_eq!(
            saved.text(),
            "--checkpoint-dir /a/s --dtype f32 '--checkpoint-dir=b/s'"
        );
    }

    #[test]
    fn order_spelling_and_what_changes_no_value_do_not_count() {
        let one = options("--pool mean,max --layers 2 --device cpu");
        let other =
            options(" --download --layers=2  --threads 1 --device=cpu --pool mean,max --force");
        assert_eq!(one.canonical(), other.canonical());
        let negative = options("--layers -1");
        assert_eq!(negative.canonical(), [("--layers", "-1")]);
        assert_ne!(one.canonical(), options("--layers 2").canonical());
    }
}
