//! A manifest in words.

use std::fmt::Display;

use plmkit_contract::{Manifest, path_text, plural};

/// One paragraph: how many records, what became of them, how the shards turned out.
pub(crate) fn summary(manifest: &Manifest) -> String {
    let rejected = manifest.rejected.values().sum::<u64>();
    format!(
        "{}: {} accepted, {rejected} rejected{}; changed: {}; {}, {}, {} in {}{}",
        plural(manifest.records, "record"),
        manifest.accepted,
        in_brackets(&counted(&manifest.rejected)),
        some(&counted(&manifest.changed)),
        plural(manifest.rows, "row"),
        plural(manifest.residues, "residue"),
        plural(manifest.tokens, "token"),
        plural(manifest.shards.len(), "shard"),
        in_brackets(&balance(manifest)),
    )
}

/// Warnings of the finished set. `limit` is the most tokens that a shard should have.
pub(crate) fn warnings(manifest: &Manifest, limit: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    for input in manifest.inputs.iter().filter(|input| input.records == 0) {
        warnings.push(format!("{}: no records", path_text(input.name.as_ref())));
    }
    if manifest.accepted == 0 {
        warnings.push("every record was rejected: see rejects.csv".to_owned());
    }
    if let Some(count @ 1..) = manifest.changed.get("proteins_truncated") {
        let longest = &manifest.options["max_residues"];
        warnings.push(format!(
            "{} truncated to {longest} residues; --long-policy window keeps every residue",
            plural(*count, "protein")
        ));
    }
    let above = || manifest.shards.iter().filter(|shard| shard.tokens > limit);
    if let Some(largest) = above().max_by_key(|shard| shard.tokens) {
        warnings.push(format!(
            "shards of one protein with more than {limit} tokens: {}; the largest is {} with {}",
            above().count(),
            largest.file,
            largest.tokens
        ));
    }
    warnings
}

/// `a 1, b 2` of the counts that are not 0.
fn counted<'a, K: Display + 'a>(counts: impl IntoIterator<Item = (&'a K, &'a u64)>) -> String {
    let counted: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| **count > 0)
        .map(|(what, count)| format!("{} {count}", what.to_string().replace('_', " ")))
        .collect();
    counted.join(", ")
}

/// The smallest and the largest shard.
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

fn some(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}
