//! All checks of a verdict: what they ask, count and find.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plmkit_contract::plural;

/// What a check asks and counts.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// What to do where it fails.
    pub remedy: &'static str,
    /// The answer, with the names of counts in braces: `{rows}`, `{rows:row}` with the noun, `{*}` for all violations. What is in
    /// brackets is left out where its first count is zero.
    pub(crate) summary: &'static str,
    /// Names of what is counted.
    counts: &'static str,
    /// Names of the kinds of violations, in the order in which they are listed.
    kinds: &'static str,
}

impl Definition {
    pub(crate) fn counts(&self) -> impl Iterator<Item = &'static str> {
        self.counts.split_whitespace()
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.kinds.split_whitespace()
    }
}

/// The checks, in the order of a verdict.
pub static CHECKS: [Definition; 17] = [
    Definition {
        name: "coverage",
        question: "Is each row of the shards there once?",
        remedy: "Embed what is missing, and give the files and lists of one run only.",
        summary: "{found:row}, {expected} expected: {rejected} rejected, {missing} missing, {extra} extra, {doubled} doubled[, {doubled_in_shards} in the shards more than once]",
        counts: "expected found rejected",
        kinds: "missing extra doubled doubled_in_shards without_list",
    },
    Definition {
        name: "records",
        question: "Has each row its id, length and residues?",
        remedy: "Embed again: these rows were made of other records than those of the shards.",
        summary: "{compared:row} compared: {id} other ids, {length} other lengths, {truncated} other truncations, {digest} other residues, {n_windows} other numbers of windows[; {aliases_compared:alias} compared: {other_alias} other residues]",
        counts: "compared aliases_compared",
        kinds: "id length truncated digest n_windows other_alias",
    },
    Definition {
        name: "ordinals",
        question: "Do shards and rejects hold all records?",
        remedy: "Give all shards and all lists of one run of fasta-shard.",
        summary: "{in_shards:record} in the shards, {in_rejects} rejected: {absent} in neither, {in_both} in both, {rejected_twice} rejected twice, {beyond} beyond the input; {in_aliases:alias}, {no_representative} without representative; {in_known} known",
        counts: "in_shards in_rejects in_aliases in_known",
        kinds: "absent in_both rejected_twice listed_twice no_representative beyond",
    },
    Definition {
        name: "manifest",
        question: "Are these the shards that the manifest lists?",
        remedy: "Give the shards and lists that were written with this manifest.",
        summary: "{records:record} in {listed:shard}: {not_given} shards not given, {unlisted} not listed, {other_rejects} reasons with other counts of rejects, {altered_rejects} other files of rejects, {altered_lists} other lists",
        counts: "records listed",
        kinds: "not_given unlisted other_rejects altered_rejects altered_lists unknown_dataset",
    },
    Definition {
        name: "origin",
        question: "Were all files made by the same work?",
        remedy: "Embed the files that differ again, with the model and the options of the others.",
        summary: "{embeddings:embeddings file}, {shards:shard}: {different} of other work than the first, {other_batches} batches of other shards, {embedded_twice} batches embedded twice, {other_rejects} rejects of other embeddings, {unlike_known} unlike known datasets",
        counts: "embeddings shards",
        kinds: "different other_batches embedded_twice other_rejects unlike_known",
    },
    Definition {
        name: "dimensions",
        question: "Have all files the same columns?",
        remedy: "Embed the files that differ again, with the columns of the others.",
        summary: "{different} of {files} files differ from the first, {other_options} from their options",
        counts: "files",
        kinds: "different other_options",
    },
    Definition {
        name: "expectations",
        question: "Are the files what was expected?",
        remedy: "Embed again as expected, or expect something else with --expect.",
        summary: "",
        counts: "",
        kinds: "empty too_many_rejected other_model other_dtype other_columns",
    },
    Definition {
        name: "finite",
        question: "Is every value a finite number?",
        remedy: "Embed again in f32 or bf16: values may be too large for f16, or weights broken.",
        summary: "{not_finite} of {vectors:vector} with NaN or infinite values",
        counts: "vectors nan infinite",
        kinds: "not_finite",
    },
    Definition {
        name: "norms",
        question: "Is no vector zero?",
        remedy: "Embed again, and check the model's weights with --model.",
        summary: "{zero} of {vectors:vector} with all values zero, {zeros} with many zeros; {scale:column} of implausible size",
        counts: "vectors",
        kinds: "zero zeros scale",
    },
    Definition {
        name: "pooling",
        question: "Do the columns of a row fit together?",
        remedy: "Embed these rows again: their columns are not of the same residues.",
        summary: "{compared} rows compared: {*} contradictions between columns",
        counts: "compared",
        kinds: "mean_above_max std_negative std_too_small not_of_residues residue_count",
    },
    Definition {
        name: "contacts",
        question: "Are contacts probabilities, and symmetric?",
        remedy: "Embed these rows again.",
        summary: "{not_probabilities} of {maps} maps with values that are no probabilities, {not_symmetric} not symmetric",
        counts: "maps",
        kinds: "not_probabilities not_symmetric",
    },
    Definition {
        name: "sequences",
        question: "Have equal sequences equal vectors, and others not?",
        remedy: "Embed these rows again: they have the vectors of other rows.",
        summary: "{repeated} vectors of repeated sequences: {different} differ from the first; {same_vector} vectors are also those of other sequences",
        counts: "repeated",
        kinds: "different same_vector",
    },
    Definition {
        name: "constant",
        question: "Does every dimension change?",
        remedy: "Check the model's weights with --model; --skip constant where the data explain it.",
        summary: "{constant} dimensions that never change in a file",
        counts: "",
        kinds: "constant",
    },
    Definition {
        name: "outliers",
        question: "Have vectors the size and direction of others?",
        remedy: "Compute a sample again with --model; --skip outliers where the data explain it.",
        summary: "{norms} of {compared} vectors of another size than others of their length, {directions} of another direction",
        counts: "compared",
        kinds: "norms directions",
    },
    Definition {
        name: "reference",
        question: "Do vectors agree with a reference?",
        remedy: "Compare the model, the layer and the pooling with those of the reference.",
        summary: "",
        counts: "compared not_in_reference rejected lenient",
        kinds: "below undefined other_dimension not_found nothing_compared",
    },
    Definition {
        name: "spot-check",
        question: "Does a second computation give the same?",
        remedy: "Check that the model is the one that the embeddings were made with, and embed again.",
        summary: "{rows:row} computed again, {different} vectors differ",
        counts: "rows",
        kinds: "other_model different different_files other_shape not_computed not_compared",
    },
    Definition {
        name: "parts",
        question: "Are the files of the dataset the listed ones?",
        remedy: "Restore the listed files under their names, and remove the others.",
        summary: "",
        counts: "listed",
        kinds: "missing_parts unlisted_parts altered_parts parts_out_of_order failed_before strays",
    },
];

/// A summary with its counts. `wrong` is the number of all violations.
pub(crate) fn filled(
    summary: &str,
    counts: &BTreeMap<Cow<'static, str>, u64>,
    wrong: u64,
) -> String {
    let count = |name: &str| counts.get(name).copied().unwrap_or(wrong);
    let mut text = String::new();
    for (place, segment) in summary.split(['[', ']']).enumerate() {
        let mut pieces = segment.split(['{', '}']);
        let first = pieces.clone().nth(1).unwrap_or_default();
        let first = first.split(':').next().unwrap_or_default();
        if place % 2 == 1 && count(first) == 0 {
            continue;
        }
        while let Some(words) = pieces.next() {
            text.push_str(words);
            match pieces.next().map(|name| name.split_once(':').ok_or(name)) {
                Some(Ok((name, noun))) => text += &plural(count(name), noun),
                Some(Err(name)) => text += &count(name).to_string(),
                None => {}
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_counts_for_all_names() {
        for check in &CHECKS {
            let names = check.summary.split('{').skip(1);
            for name in names.filter_map(|rest| rest.split(['}', ':']).next()) {
                let mut known = check.counts().chain(check.kinds()).chain(["*"]);
                assert!(known.any(|known| known == name), "{name}");
            }
        }
        let counts = [("rows", 1), ("id", 0)].map(|(name, count)| (name.into(), count));
        let text = filled(
            "{rows:row}, {*} wrong[, {id} ids][, {rows} more]",
            &counts.into(),
            2,
        );
        assert_eq!(text, "1 row, 2 wrong, 1 more");
    }
}
