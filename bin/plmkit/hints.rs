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
const GIVEN: [&str; 8] = [
    "--batch-size",
    "--dataset",
    "--events",
    "--manifest",
    "--mqc",
    "--rejects",
    "--serve",
    "--shards",
];

fn find<'c>(command: &'c Command, option: &str) -> Option<&'c Arg> {
    let name = option.strip_prefix("--")?;
    let mut options = command.get_arguments();
    options.find(|own| own.get_long() == Some(name) && !own.is_hide_set())
}

/// The program that has an option, and the option.
fn of_program(option: &str) -> Option<(&'static str, &'static Arg)> {
    // The sample of fasta-shard has a name already.
    let mut programs = PROGRAMS[usize::from(option == "--sample")..].iter();
    programs.find_map(|program| Some((program.get_name(), find(program, option)?)))
}

/// Says where an option belongs that plmkit does not have.
pub(crate) fn place_of(option: &str) -> Option<String> {
    let (program, _) = of_program(option)?;
    Some(format!(
        "it is an option of {program}: --{program} '{option} …'"
    ))
}

/// Spells each option in a message that stands outside of quotes. A word after it is its value if it can be one.
pub(crate) fn spelled(message: &str) -> String {
    let (mut spelled, mut open): (Vec<String>, Option<char>) = (Vec::new(), None);
    let mut words = message.split(' ').peekable();
    while let Some(word) = words.next() {
        let bare = word.trim_start_matches('(');
        let is_end = |quote: char, word: &str| word.contains(quote);
        open = match open {
            Some(quote) if is_end(quote, word) => None,
            None if bare.starts_with(['"', '\''])
                && !is_end(bare.as_bytes()[0].into(), &bare[1..]) =>
            {
                bare.chars().next()
            }
            open => open,
        };
        let (option, end) = divided(bare);
        if open.is_some() || !option.starts_with("--") || end.starts_with(['=', '"', '\'']) {
            spelled.push(word.to_owned());
            continue;
        }
        let next = words
            .peek()
            .filter(|_| end.is_empty())
            .map(|next| divided(next));
        let (own, other) = (find(&OWN, option), of_program(option));
        let value = next.filter(|(value, _)| other.is_some_and(|(_, arg)| takes(arg, value)));
        let (value, end) = match value {
            Some((value, end)) => (words.next().map(|_| value), end),
            None => (None, end),
        };
        let before = spelled.pop_if(|before| {
            let names = PROGRAMS.iter().map(Command::get_name);
            names
                .clone()
                .any(|name| before.trim_start_matches('(') == name)
        });
        let text = match (own, other, value) {
            _ if option == "--long-policy" && value == Some("window") => "--windows".to_owned(),
            (Some(own), _, value) if value.is_none() || own.get_action().takes_values() => [option]
                .into_iter()
                .chain(value)
                .collect::<Vec<_>>()
                .join(" "),
            (_, Some((program, arg)), _) if before.is_none() && !GIVEN.contains(&option) => {
                let more = value.unwrap_or("…");
                if arg.get_action().takes_values() {
                    format!("--{program} \"{option} {more}\"")
                } else {
                    format!("--{program} {option}")
                }
            }
            _ => [before.as_deref(), Some(option), value]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
        };
        spelled.push(format!("{}{text}{end}", &word[..word.len() - bare.len()]));
    }
    spelled.join(" ")
}

/// A word, and the punctuation after it.
fn divided(word: &str) -> (&str, &str) {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_%/<>".contains(letter);
    word.split_at(word.find(|letter| !is_part(letter)).unwrap_or(word.len()))
}

/// Whether a word can be a value of an option.
fn takes(option: &Arg, word: &str) -> bool {
    let mut known = option.get_possible_values().into_iter();
    option.get_action().takes_values()
        && (known.any(|value| value.matches(word, false))
            || word.contains(|letter: char| letter.is_ascii_digit() || letter == '<')
            || word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase()))
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
            ("(fasta-shard --known), and", "(--known), and"),
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
