//! Whether shards and rejects are those that the manifest lists.

use std::collections::BTreeMap;

use plmkit_contract::{Manifest, Quoted, Reason, plural};

use crate::AliasLists;
use crate::check::Check;
use crate::files::ShardFile;
use crate::violation::Violations;

/// The check `manifest`: of `shards`, of `rejected`, the number of rejected records by
/// reason, if rejects were given, of the digests of `rejects_files`, each with the name of the file, and of the other `lists`.
pub(crate) fn check(
    manifest: &Manifest,
    shards: &[ShardFile],
    rejected: Option<&BTreeMap<Reason, u64>>,
    rejects_files: &[(String, String)],
    lists: &AliasLists,
) -> Check {
    let mut listed: BTreeMap<&str, Vec<&str>> = BTreeMap::new(); // file names, by digest
    for shard in &manifest.shards {
        listed.entry(&shard.digest).or_default().push(&shard.file);
    }
    let mut unlisted = Violations::default();
    for shard in shards {
        let found = listed.get_mut(shard.rows.to_string().as_str());
        if found.and_then(Vec::pop).is_none() {
            unlisted.add_file(format_args!("{}: not a shard of the manifest", shard.name));
        }
    }
    let mut not_given = Violations::default();
    for file in listed.into_values().flatten() {
        let file = Quoted(file);
        not_given.add_file(format_args!("{file} of the manifest: not among the shards"));
    }
    let mut other_rejects = Violations::default();
    for reason in Reason::SHARDING {
        let expected = manifest.rejected.get(&reason).copied().unwrap_or(0);
        let found = rejected.map(|counts| counts.get(&reason).copied().unwrap_or(0));
        if let Some(found) = found.filter(|&found| found != expected) {
            let problem =
                format_args!("expected {expected} records rejected as {reason}, found {found}");
            other_rejects.add_file(problem);
        }
    }
    let mut altered_rejects = Violations::default();
    for (file, digest) in rejects_files {
        let expected = &manifest.rejects_digest;
        if digest != expected {
            altered_rejects.add_file(format_args!(
                    "{file}: not the rejects of the manifest: it has digest {digest}, expected {expected}"
            ));
        }
    }
    let summary = format!(
        "{} in {}: {} shards not given, {} not listed, {} reasons with other counts of rejects, \
         {} other files of rejects, {} other lists",
        plural(manifest.records, "record"),
        plural(manifest.shards.len(), "shard"),
        not_given.count,
        unlisted.count,
        other_rejects.count,
        altered_rejects.count,
        lists.altered.count
    );
    Check::judged(
        "manifest",
        summary,
        [
            ("records", manifest.records),
            ("listed", manifest.shards.len() as u64),
        ],
        [
            ("not_given", not_given),
            ("unlisted", unlisted),
            ("other_rejects", other_rejects),
            ("altered_rejects", altered_rejects),
            ("altered_lists", lists.altered.clone()),
            ("unknown_dataset", lists.unknown_dataset.clone()),
        ],
    )
}
