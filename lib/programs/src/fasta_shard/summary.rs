//! Summarizes a manifest.

use std::fmt::Display;

use plmkit_contract::{LONG_SHARD_PREFIX, Manifest, ShardSummary, TranslationSummary};
use plmkit_kit::{path_text, plural};
use plmkit_sequence::ShardTarget;

/// Formats the numbers of records, rejects, changes and shards on one line.
pub(crate) fn summary(manifest: &Manifest) -> String {
    let rejected = manifest.rejected.values().sum::<u64>();
    let changed = counted(&manifest.changed);
    let aliases = manifest.aliases.as_ref();
    let aliases = aliases.map(|list| format!(", {}", plural(list.rows, "alias")));
    let known = manifest.known.as_ref();
    let known = known.map(|known| format!(", {} known", known.list.rows));
    let listed = aliases.unwrap_or_default() + &known.unwrap_or_default();
    format!(
        "{}{}: {} accepted{listed}, {rejected} rejected{}; changed: {}; {}, {}, {} in {}{}",
        manifest.translation.map(translated).unwrap_or_default(),
        plural(manifest.records, "record"),
        manifest.accepted,
        in_brackets(&counted(&manifest.rejected)),
        if changed.is_empty() {
            "nothing"
        } else {
            &changed
        },
        plural(manifest.rows, "row"),
        plural(manifest.residues, "residue"),
        plural(manifest.tokens, "token"),
        plural(manifest.shards.len(), "shard"),
        in_brackets(&balance(manifest)),
    )
}

/// Formats what a translation made of contigs, before the records.
fn translated(of: TranslationSummary) -> String {
    let replaced = match of.bases_replaced_by_n {
        0 => String::new(),
        count => format!(", {count} replaced by N"),
    };
    format!(
        "{} ({}{replaced}) translated to {}, {} shorter left out; ",
        plural(of.contigs, "contig"),
        plural(of.bases, "base"),
        plural(of.peptides, "peptide"),
        of.peptides_too_short,
    )
}

/// Returns the warnings of a set of shards.
pub(crate) fn warnings(manifest: &Manifest, target: ShardTarget) -> Vec<String> {
    let mut warnings = Vec::new();
    for input in manifest.inputs.iter().filter(|input| input.records == 0) {
        warnings.push(format!("{}: no records", path_text(input.name.as_ref())));
    }
    let rejected: u64 = manifest.rejected.values().sum();
    if rejected == manifest.records && rejected > 0 {
        warnings.push("every record was rejected: see rejects.csv".to_owned());
    }
    if let Some(count @ 1..) = manifest.changed.get("proteins_truncated") {
        let longest = &manifest.options["max_residues"];
        warnings.push(format!(
            "{} truncated to {longest} residues; --long-policy window keeps every residue",
            plural(*count, "protein")
        ));
    }
    if let ShardTarget::MaxTokens(limit) = target {
        let is_long = |shard: &&ShardSummary| shard.file.starts_with(LONG_SHARD_PREFIX);
        let (long, usual): (Vec<_>, Vec<_>) = manifest.shards.iter().partition(is_long);
        let indexed = usual.iter().enumerate().chain(long.iter().enumerate());
        let above = indexed.filter(|(index, shard)| shard.tokens > limit.of(*index));
        let above: Vec<&ShardSummary> = above.map(|(_, shard)| *shard).collect();
        if let Some(largest) = above.iter().max_by_key(|shard| shard.tokens) {
            warnings.push(format!(
                "shards of one protein with more than {limit} tokens: {}; the largest is {} with {}",
                above.len(),
                largest.file,
                largest.tokens
            ));
        }
    }
    warnings
}

/// Formats the counts that are not 0: `a 1, b 2`.
fn counted<'a, K: Display + 'a>(counts: impl IntoIterator<Item = (&'a K, &'a u64)>) -> String {
    let counted: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| **count > 0)
        .map(|(what, count)| format!("{} {count}", what.to_string().replace('_', " ")))
        .collect();
    counted.join(", ")
}

/// Formats the tokens of the smallest and the largest shard.
fn balance(manifest: &Manifest) -> String {
    let tokens = || manifest.shards.iter().map(|shard| shard.tokens);
    match (tokens().min(), tokens().max()) {
        (Some(least), Some(most)) => format!("{least} to {most} tokens each"),
        _ => String::new(),
    }
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" ({text})")
    }
}
