//! Options in messages of the programs, spelled as plmkit takes them.

use std::sync::LazyLock;

use clap::{Arg, Command, CommandFactory};
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};

use crate::args::Args;

/// The programs, whose options an option of their name passes on.
static PROGRAMS: LazyLock<[Command; 4]> = LazyLock::new(|| {
    [
        fasta_shard::Args::command(),
        pack_batches::Args::command(),
        gpu_embed::Args::command(),
        validate_embeddings::Args::command(),
    ]
});
static OWN: LazyLock<Command> = LazyLock::new(Args::command);

/// Options that plmkit gives to the programs itself. A message about one is no hint.
const GIVEN: &str = "--batch-size --dataset --events --manifest --mqc --rejects --serve --shards";

/// Hints with another name here.
const RENAMED: [[&str; 2]; 2] = [
    ["--long-policy window", "--windows"],
    ["pack-batches --force", "--force"],
];

fn find<'c>(command: &'c Command, option: &str) -> Option<&'c Arg> {
    let mut options = command.get_arguments();
    options.find(|own| own.get_long() == option.strip_prefix("--") && !own.is_hide_set())
}

/// The program that has an option, and the option.
fn find_owner(option: &str) -> Option<(&'static str, &'static Arg)> {
    // The sample of fasta-shard has a name already.
    let mut programs = PROGRAMS[usize::from(option == "--sample")..].iter();
    programs.find_map(|program| Some((program.get_name(), find(program, option)?)))
}

/// Says where an option belongs that plmkit does not have.
pub(crate) fn owner_of_option(option: &str) -> Option<String> {
    let (program, _) = find_owner(option)?;
    Some(format!(
        "it is an option of {program}: --{program} '{option} …'"
    ))
}

/// Spells each option in a message that stands outside of quotes and behind no name of a program. A word after it is its value if it
/// can be one.
pub(crate) fn spelled(message: &str) -> String {
    let renamed = |text: String, [of_program, own]: [&str; 2]| text.replace(of_program, own);
    let message = RENAMED.into_iter().fold(message.to_owned(), renamed);
    let (mut spelled, mut is_quoted, mut before) = (Vec::new(), false, "");
    let mut words = message.split(' ').peekable();
    while let Some(word) = words.next() {
        let ((option, end), is_named) = (divided(word), before.trim_start_matches(['(', '-']));
        let is_named = PROGRAMS
            .iter()
            .any(|program| program.get_name() == is_named);
        let is_edge = word.starts_with(QUOTES) || end.starts_with(QUOTES);
        is_quoted ^= is_edge && word.matches(QUOTES).count() % 2 == 1;
        before = word;
        let other = find_owner(option).filter(|_| {
            !is_quoted && !is_named && !is_edge && !end.starts_with('=') && !GIVEN.contains(option)
        });
        let Some((program, arg)) = other else {
            spelled.push(word.to_owned());
            continue;
        };
        let next = words
            .peek()
            .filter(|_| end.is_empty())
            .map(|next| divided(next));
        let value = next.filter(|(value, _)| takes(arg, value));
        let is_own = find(&OWN, option)
            .is_some_and(|own| value.is_none() || own.get_action().takes_values());
        let (value, end) = value.inspect(|_| _ = words.next()).unwrap_or(("…", end));
        spelled.push(match arg.get_action().takes_values() {
            _ if is_own && value == "…" => word.to_owned(),
            _ if is_own => format!("{option} {value}{end}"),
            true => format!("--{program} \"{option} {value}\"{end}"),
            false => format!("--{program} {option}{end}"),
        });
    }
    spelled.join(" ")
}

const QUOTES: [char; 2] = ['"', '\''];

/// A word, and the punctuation after it.
fn divided(word: &str) -> (&str, &str) {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_%/<>".contains(letter);
    word.split_at(word.find(|letter| !is_part(letter)).unwrap_or(word.len()))
}

/// Whether a word can be a value of an option.
fn takes(option: &Arg, word: &str) -> bool {
    let mut known = option.get_possible_values().into_iter();
    let is_name = |letter: char| letter.is_ascii_uppercase() || "<>".contains(letter);
    option.get_action().takes_values()
        && (known.any(|value| value.matches(word, false))
            || word.contains(|letter: char| letter.is_ascii_digit())
            || word.len() > 1 && word.chars().all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_spelled_as_plmkit_takes_it() {
        for (of_program, of_plmkit) in [
            (
                "--long-policy window keeps every residue",
                "--windows keeps every residue",
            ),
            (
                "a: --invalid x replaces such, --invalid reject sets aside",
                "a: --fasta-shard \"--invalid x\" replaces such, --fasta-shard \"--invalid reject\" sets aside",
            ),
            (
                "or --max-rejected SHARE: empty 3",
                "or --validate-embeddings \"--max-rejected SHARE\": empty 3",
            ),
            (
                "accept more with --max-rejected.",
                "accept more with --validate-embeddings \"--max-rejected …\".",
            ),
            (
                "--drop-blanks takes every letter",
                "--fasta-shard --drop-blanks takes every letter",
            ),
            ("(fasta-shard --known), and", "(fasta-shard --known), and"),
            (
                "ordinal 3; pack-batches --force packs them anew",
                "ordinal 3; --force packs them anew",
            ),
            ("of gpu-embed --probe", "of gpu-embed --probe"),
            ("; --allow-empty accepts it", "; --allow-empty accepts it"),
            (
                "take --windows separate, or shards without --long-policy window",
                "take --gpu-embed \"--windows separate\", or shards without --windows",
            ),
            (
                "--dtype int8 is refused; try --dtype bf16 or f32",
                "--dtype int8 is refused; try --dtype bf16 or f32",
            ),
            (
                "gpu-embed '--dtype f32 --kernels avx2', which; a smaller --max-batch-tokens",
                "gpu-embed '--dtype f32 --kernels avx2', which; a smaller --pack-batches \"--max-batch-tokens …\"",
            ),
            (
                "'--no-such' found; --nothing",
                "'--no-such' found; --nothing",
            ),
            ("--rejects a/b.csv: exists", "--rejects a/b.csv: exists"),
        ] {
            assert_eq!(spelled(of_program), of_plmkit);
            assert_eq!(spelled(of_plmkit), of_plmkit, "a second time");
        }
    }
}
