//! Whether shards and rejects are those that the manifest lists, and embeddings were made of them.

use std::collections::BTreeMap;

use plmkit_contract::{Manifest, Reason, RejectsList, SOURCE};
use plmkit_kit::Quoted;

use crate::check::Tallies;
use crate::checks::manifest as kind;
use crate::criteria::Criteria;
use crate::findings::Findings;
use crate::violation::FILE;

/// The check `manifest`, of the shards and of the lists of records that were rejected: so many for each reason.
pub(crate) fn check(
    manifest: &Manifest,
    findings: &Findings,
    criteria: &Criteria,
    by_reason: &BTreeMap<Reason, u64>,
    tallies: &mut Tallies,
) {
    tallies.count(kind::records, manifest.records);
    tallies.count(kind::listed, manifest.shards.len() as u64);
    let mut listed: BTreeMap<&str, Vec<&str>> = BTreeMap::new(); // file names, by digest
    for shard in &manifest.shards {
        listed.entry(&shard.digest).or_default().push(&shard.file);
    }
    for shard in &findings.shards {
        let found = listed.get_mut(shard.rows.to_string().as_str());
        if found.and_then(Vec::pop).is_none() {
            let problem = format_args!("{}: not a shard of the manifest", shard.name);
            tallies.add(kind::unlisted, FILE, problem);
        }
    }
    for file in listed.into_values().flatten() {
        let file = Quoted(file);
        let problem = format_args!("{file} of the manifest: not among the shards");
        tallies.add(kind::not_given, FILE, problem);
    }
    let source = manifest.work().source();
    for file in &findings.embeddings {
        let made_of = file.provenance.text_option(SOURCE);
        if made_of.is_some_and(|made_of| made_of != source) {
            let problem = format_args!("{}: made of the shards of another manifest", file.name);
            tallies.add(kind::other_source, FILE, problem);
        }
    }
    for reason in Reason::SHARDING {
        let [expected, found] =
            [&manifest.rejected, by_reason].map(|counts| counts.get(&reason).copied().unwrap_or(0));
        if found != expected {
            let problem =
                format_args!("expected {expected} records rejected as {reason}, found {found}");
            tallies.add(kind::other_rejects, FILE, problem);
        }
    }
    let expected = &manifest.rejects_digest;
    for (file, RejectsList { digest, .. }) in criteria.lists(false) {
        if digest != expected {
            let problem = format_args!(
                "{file}: not the rejects of the manifest: it has digest {digest}, expected {expected}"
            );
            tallies.add(kind::altered_rejects, FILE, problem);
        }
    }
}
