//! All checks of a verdict: what they ask, count and find.

use std::collections::BTreeMap;

/// What a check asks and counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// What to do where it fails.
    pub remedy: &'static str,
    /// What is counted.
    pub(crate) counts: &'static [Kind],
    /// The kinds of violations, in the order in which they are listed.
    pub(crate) kinds: &'static [Kind],
}

/// What a check counts, or a kind of its violations. There are none but those of the table below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    check: &'static str,
    pub(crate) name: &'static str,
    /// The words after its number. An ending in parentheses is left out after 1.
    words: &'static str,
}

/// Defines the checks, and a module for each with its kinds.
macro_rules! checks {
    ($($check:ident $name:literal {
        question: $question:literal,
        remedy: $remedy:literal,
        counts: { $($count:ident: $counted:literal),* $(,)? },
        kinds: { $($kind:ident: $found:literal),* $(,)? },
    })*) => {
        $(#[allow(non_upper_case_globals)]
        pub(crate) mod $check {
            use super::Kind;

            const fn kind(name: &'static str, words: &'static str) -> Kind {
                Kind { check: $name, name, words }
            }
            $(pub(crate) const $count: Kind = kind(stringify!($count), $counted);)*
            $(pub(crate) const $kind: Kind = kind(stringify!($kind), $found);)*
        })*

        /// The checks, in the order of a verdict.
        pub static CHECKS: [Definition; 15] = [$(Definition {
            name: $name,
            question: $question,
            remedy: $remedy,
            counts: &[$($check::$count),*],
            kinds: &[$($check::$kind),*],
        }),*];
    };
}

checks! {
    coverage "coverage" {
        question: "Is each row of the shards there once?",
        remedy: "Embed what is missing, and give the files and lists of one run only.",
        counts: { found: "row(s)", expected: "expected", rejected: "rejected" },
        kinds: {
            missing: "row(s) missing", extra: "row(s) not in the shards", doubled: "row(s) more than once",
            doubled_in_shards: "row(s) in the shards more than once", without_list: "file(s) without list of rejects",
        },
    }
    records "records" {
        question: "Has each row its id, length and residues?",
        remedy: "Embed again: these rows were made of other records than those of the shards.",
        counts: { compared: "row(s)", aliases_compared: "alias(es)" },
        kinds: {
            id: "row(s) of another id", length: "row(s) of another length", truncated: "row(s) truncated otherwise",
            digest: "row(s) of other residues", n_windows: "row(s) of another number of windows",
            other_alias: "alias(es) of other residues",
        },
    }
    ordinals "ordinals" {
        question: "Do shards and rejects hold all records?",
        remedy: "Give all shards and all lists of one run of fasta-shard.",
        counts: { in_shards: "record(s) in the shards", in_rejects: "rejected", in_aliases: "alias(es)", in_known: "known" },
        kinds: {
            absent: "record(s) nowhere", in_both: "record(s) in two places", rejected_twice: "record(s) rejected twice",
            listed_twice: "record(s) listed twice", no_representative: "alias(es) without representative",
            beyond: "record(s) beyond the input",
        },
    }
    manifest "manifest" {
        question: "Are these the shards that the manifest lists?",
        remedy: "Give the shards and lists that were written with this manifest.",
        counts: { records: "record(s)", listed: "shard(s)" },
        kinds: {
            not_given: "shard(s) not given", unlisted: "shard(s) not listed",
            other_rejects: "reason(s) with other counts of rejects", altered_rejects: "other file(s) of rejects",
            altered_lists: "other list(s)", unknown_dataset: "record(s) of unknown datasets",
            other_source: "file(s) of other shards",
        },
    }
    origin "origin" {
        question: "Were all files made by the same work, with the same columns?",
        remedy: "Embed the files that differ again, with the model and the options of the others.",
        counts: { embeddings: "embeddings file(s)", shards: "shard(s)" },
        kinds: {
            different: "file(s) of other work than the first", other_columns: "file(s) with other columns than the first",
            other_batches: "file(s) of batches of other shards", embedded_twice: "file(s) of batches embedded twice",
            other_rejects: "list(s) of other embeddings", unlike_known: "file(s) unlike known datasets",
            not_in_order: "row(s) not in the order of the input", other_name: "file(s) with the name of another shard",
        },
    }
    rejected "rejected" {
        question: "Are there rows, and few enough rejected records?",
        remedy: "Find out why records were rejected, or accept more with --max-rejected.",
        counts: { records: "record(s)", rejected: "rejected" },
        kinds: { empty: "set(s) without rows", too_many_rejected: "share(s) of rejects too large" },
    }
    finite "finite" {
        question: "Is every value a finite number?",
        remedy: "Embed again in f32 or bf16: values may be too large for f16, or weights broken.",
        counts: { vectors: "vector(s)" },
        kinds: { not_finite: "vector(s) with NaN or infinite values" },
    }
    zero "zero" {
        question: "Is no vector zero?",
        remedy: "Embed again, and compute a sample again with --model.",
        counts: { vectors: "vector(s)" },
        kinds: { zero: "vector(s) zero", zeros: "vector(s) with many zeros" },
    }
    outliers "outliers" {
        question: "Have all vectors of a file about one size and direction?",
        remedy: "Embed these rows again, and compute a sample again with --model; --skip outliers where the data explain it.",
        counts: { vectors: "vector(s)" },
        kinds: { size: "vector(s) of another size", direction: "vector(s) of another direction" },
    }
    pooling "pooling" {
        question: "Do the columns of a row fit together?",
        remedy: "Embed these rows again: their columns are not of the same residues.",
        counts: { compared: "row(s)" },
        kinds: {
            mean_above_max: "mean(s) above the maximum", std_negative: "negative deviation(s)",
            std_too_small: "deviation(s) too small", not_of_residues: "column(s) not of the residues",
            residue_count: "column(s) of other numbers of residues",
        },
    }
    contacts "contacts" {
        question: "Are contacts probabilities, and symmetric?",
        remedy: "Embed these rows again.",
        counts: { maps: "map(s)" },
        kinds: { not_probabilities: "map(s) of no probabilities", not_symmetric: "map(s) not symmetric" },
    }
    sequences "sequences" {
        question: "Have equal sequences equal vectors, and others not?",
        remedy: "Embed these rows again: they have the vectors of other rows.",
        counts: { repeated: "vector(s) of repeated sequences" },
        kinds: { different: "vector(s) unlike those of the same residues", same_vector: "vector(s) also of other residues" },
    }
    constant "constant" {
        question: "Does every dimension change?",
        remedy: "Compute a sample again with --model; --skip constant where the data explain it.",
        counts: { columns: "column(s) of a file" },
        kinds: { constant: "constant dimension(s)" },
    }
    reference "reference" {
        question: "Do vectors agree with a reference?",
        remedy: "Compare the model, the layer and the pooling with those of the reference.",
        counts: { compared: "row(s) compared", not_in_reference: "not in the reference", rejected: "rejected" },
        kinds: {
            below: "vector(s) below --min-cosine", other_norm: "vector(s) of another norm",
            undefined: "vector(s) without a cosine", other_dimension: "vector(s) of another dimension",
            not_found: "row(s) of the reference not found", nothing_compared: "reference(s) of other ids",
        },
    }
    spot_check "spot-check" {
        question: "Does a second computation give the same?",
        remedy: "Embed again, with the model in --model and sound hardware.",
        counts: { rows: "row(s) computed again" },
        kinds: {
            different: "different vector(s)", different_files: "different median(s) of files",
            not_computed: "row(s) not computed again", not_compared: "column(s) not computed again",
        },
    }
}

/// Those of some kinds that are not zero, in words; the first if all are.
pub(crate) fn in_words(kinds: &[Kind], counts: &BTreeMap<&'static str, u64>) -> String {
    let all = kinds.iter().map(|kind| {
        let count = counts.get(kind.name).copied().unwrap_or(0);
        let (es, s) = if count == 1 { ("", "") } else { ("es", "s") };
        let words = kind.words.replace("(es)", es).replace("(s)", s);
        (count, format!("{count} {words}"))
    });
    let said = all.clone().filter(|(count, _)| *count > 0);
    let said: Vec<String> = said.map(|(_, words)| words).collect();
    if said.is_empty() {
        all.map(|(_, words)| words).next().unwrap_or_default()
    } else {
        said.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_what_is_not_zero() {
        let said = |found, aliases| {
            let counts = [("compared", found), ("aliases_compared", aliases)];
            in_words(
                &[records::compared, records::aliases_compared],
                &counts.into(),
            )
        };
        assert_eq!(said(1, 2), "1 row, 2 aliases");
        assert_eq!(said(0, 1), "1 alias");
        assert_eq!(said(0, 0), "0 rows");
    }
}
