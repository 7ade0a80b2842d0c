//! `--dedup`: each distinct sequence is in one shard, and `aliases.parquet` lists the others.

use std::fs;

use plmkit_contract::{Kind, SequenceDigest, alias_rows};
use plmkit_store::RecordListReader;

use crate::case::Case;

/// Ordinal, id, description, length, truncated, digest, representative of each alias.
type Alias = (u64, String, Option<String>, u32, bool, SequenceDigest, u64);

fn aliases(case: &Case) -> Vec<Alias> {
    let path = case.out().join("aliases.parquet");
    let mut reader = RecordListReader::open(&path, Kind::Aliases).expect("aliases");
    let mut aliases = Vec::new();
    while let Some(batch) = reader.next_batch().expect("rows") {
        aliases.extend(alias_rows(&batch).map(|row| {
            let description = row.description.map(str::to_owned);
            let (id, digest) = (row.key.id.to_owned(), row.key.digest);
            assert_eq!(row.dataset, None);
            (
                row.key.ordinal,
                id,
                description,
                row.key.length,
                row.key.truncated,
                digest,
                row.representative,
            )
        }));
    }
    let listed = case.manifest().aliases.expect("aliases");
    assert_eq!(listed.rows, aliases.len() as u64);
    assert_eq!(listed.digest, reader.digest().to_string());
    aliases
}

#[test]
fn the_same_residues_are_in_one_shard_however_they_are_written() {
    let case = Case::new();
    let text = ">a\nMKVLA\n>b x y\nmkvla*\n>c\nM K V L A\n>d\nMKVL\n>e\nM\n>f\nMKVLA\n>g\nMKVL\n";
    case.write("a.fasta", text);
    let message = "7 records: 2 accepted, 4 aliases, 1 rejected (too short 1); changed: blanks dropped 4, residues uppercased 5, terminal stops removed 1; 2 rows";
    case.says("a.fasta --shards 1 --dedup --min-residues 2", message);
    assert_eq!(case.ids(), ["a", "d"]);
    let digest = SequenceDigest::new;
    let alias = |ordinal, id: &str, description: Option<&str>, residues: &[u8], representative| {
        let description = description.map(str::to_owned);
        let length = residues.len() as u32;
        (
            ordinal,
            id.to_owned(),
            description,
            length,
            false,
            digest(residues),
            representative,
        )
    };
    let expected = [
        alias(1, "b", Some("x y"), b"MKVLA", 0),
        alias(2, "c", None, b"MKVLA", 0),
        alias(5, "f", None, b"MKVLA", 0),
        alias(6, "g", None, b"MKVL", 3),
    ];
    assert_eq!(aliases(&case), expected);
}

#[test]
fn residues_are_compared_before_they_are_cut() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMKVLA\n>b\nMKVLAA\n>c\nMKVLA\n>d\nMKV\n");
    for (policy, residues) in [("truncate", &b"MKV"[..]), ("window --overlap 1", b"MKVLA")] {
        let options = format!("--shards 1 --dedup --max-residues 3 --long-policy {policy} --force");
        let manifest = case.succeeds(&format!("a.fasta {options}"));
        assert_eq!(manifest.accepted, 3, "{policy}");
        let truncated = policy == "truncate";
        let digest = SequenceDigest::new(residues);
        assert_eq!(
            aliases(&case),
            [(2, "c".into(), None, 5, truncated, digest, 0)]
        );
        assert_eq!(
            manifest.changed["proteins_truncated"],
            2 * u64::from(truncated)
        );
    }
    case.fails(
        "a.fasta a.fasta --shards 1 --dedup --force",
        65,
        "expected a new id",
    );
}

#[test]
fn an_existing_list_is_verified_and_one_that_is_not_asked_for_removed() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMKVLA\n>b\nMKVLA\n");
    let dedup = "a.fasta --shards 1 --dedup";
    case.succeeds(dedup);
    case.says(dedup, "already complete");
    let path = case.out().join("aliases.parquet");
    let whole = fs::read(&path).expect("read");
    let mut damaged = whole.clone();
    damaged[10] ^= 1;
    fs::write(&path, damaged).expect("write");
    case.fails(dedup, 65, "aliases.parquet: ");
    fs::remove_file(&path).expect("remove");
    case.fails(
        dedup,
        65,
        "aliases.parquet: missing, though manifest.json says",
    );
    case.succeeds(&format!("{dedup} --force"));
    assert!(fs::read(&path).expect("read") == whole);
    case.fails("a.fasta --shards 1", 73, "dedup was true and is now unset");
    case.succeeds("a.fasta --shards 1 --force");
    assert!(!path.exists());
}
