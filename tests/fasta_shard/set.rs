//! Sets of shards: determinism, balance, existing sets.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::case::{Case, done, fed, proteins, rows};
use crate::common::assert_failed;

fn case() -> Case {
    let case = Case::new();
    case.write("a.fasta", proteins(400, 7));
    case
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let proteins = proteins(400, 7);
    let copies = proteins.replace(">P", ">copy-").to_lowercase();
    for options in [
        "--shards 5",
        "--max-shard-tokens 20000",
        "--max-shard-tokens 9000+3000",
        "--shards 3 --long-policy separate",
        "--shards 3 --long-policy window",
        "--shards 3 --dedup",
        "--max-shard-tokens 20000 --long-policy window --dedup",
    ] {
        let made = |threads: usize| {
            let case = Case::new();
            case.write("a.fasta", [&*proteins, &copies].concat());
            case.succeeds(&format!("a.fasta {options} --threads {threads}"));
            case.files()
        };
        let one = made(1);
        assert!(one.len() > 4);
        for threads in [2, 3, 16] {
            assert!(made(threads) == one, "{options} --threads {threads}");
        }
    }
}

#[test]
fn every_record_is_in_one_shard_and_shards_are_balanced() {
    let case = case();
    let manifest = case.succeeds("a.fasta --shards 7");
    let ordinals: Vec<u64> = case.rows().iter().map(|row| row.ordinal).collect();
    assert_eq!(ordinals, (0..400).collect::<Vec<u64>>());
    let tokens: Vec<u64> = manifest.shards.iter().map(|shard| shard.tokens).collect();
    assert_eq!(tokens.len(), 7);
    let spread = tokens.iter().max().unwrap() - tokens.iter().min().unwrap();
    assert!(spread <= 1024, "{tokens:?}");
    for shard in &manifest.shards {
        let rows = rows(&case.out().join(&shard.file));
        let residues: usize = rows.iter().map(|row| row.sequence.len()).sum();
        assert_eq!(shard.rows, rows.len() as u64);
        assert_eq!(shard.residues, residues as u64);
        assert_eq!(shard.tokens, shard.residues + 2 * shard.rows);
    }
    let histogram = manifest.lengths.histogram.iter();
    assert_eq!(histogram.map(|bin| bin.count).sum::<u64>(), 400);
}

#[test]
fn shards_keep_to_their_tokens() {
    let case = case();
    let manifest = case.succeeds("a.fasta --max-shard-tokens 30000");
    assert!(manifest.shards.len() > 5);
    assert!(manifest.shards.iter().all(|shard| shard.tokens <= 30_000));
    let in_order: Vec<u64> = manifest
        .shards
        .iter()
        .flat_map(|shard| rows(&case.out().join(&shard.file)))
        .map(|row| row.ordinal)
        .collect();
    assert_eq!(in_order, (0..400).collect::<Vec<u64>>());

    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>b\nMKVLMKVL\n>c\nMK\n");
    let message = "shards of one protein with more than 8 tokens: 1; the largest is shard-00001.parquet with 10";
    case.says("a.fasta --max-shard-tokens 8", message);
    assert_eq!(case.manifest().shards.len(), 3);
}

#[test]
fn growing_shards_are_their_own_work() {
    let case = case();
    case.succeeds("a.fasta --max-shard-tokens 20000+5000");
    let manifest = case.manifest();
    assert_eq!(manifest.options["max_shard_tokens"], "20000+5000");
    for (index, shard) in manifest.shards.iter().enumerate() {
        assert!(shard.tokens <= 20_000 + 5_000 * index as u64, "{index}");
    }
    let tokens: Vec<u64> = manifest.shards.iter().map(|shard| shard.tokens).collect();
    assert!(tokens.len() > 2 && tokens[1] > 20_000, "{tokens:?}");
    let before = case.files();
    case.says("a.fasta --max-shard-tokens 20000+5000", "already complete");
    let other = "max_shard_tokens was \"20000+5000\" and is now";
    for (limit, found) in [("20000", "20000"), ("20000+5001", "\"20000+5001\"")] {
        let args = format!("a.fasta --max-shard-tokens {limit}");
        case.fails(&args, 73, &format!("{other} {found}"));
    }
    assert!(case.files() == before);
    // No growth is a fixed size, to the byte.
    case.succeeds("a.fasta --max-shard-tokens 20000+0 --force");
    case.says("a.fasta --max-shard-tokens 20000", "already complete");
}

fn times(case: &Case) -> Vec<SystemTime> {
    let modified = |path: PathBuf| path.metadata().and_then(|found| found.modified());
    let paths = case.files().into_keys().map(|path| case.out().join(path));
    paths.map(|path| modified(path).expect("a time")).collect()
}

#[test]
fn a_complete_set_is_kept() {
    let case = case();
    let packed = zstd::encode_all(proteins(400, 7).as_bytes(), 3);
    case.write("b.fasta.zst", packed.expect("memory"));
    case.succeeds("a.fasta --shards 3");
    let before = times(&case);
    for input in ["a.fasta", "b.fasta.zst"] {
        let args = format!("{input} --shards 3 --threads 1");
        case.says(&args, "already complete");
    }
    let output = fed(case.command("- --shards 3"), proteins(400, 7));
    done(&output);
    assert_eq!(times(&case), before);
}

#[test]
fn temporary_files_beside_a_complete_set_are_removed() {
    let case = case();
    case.succeeds("a.fasta --shards 3");
    let whole = case.files();
    // A run with --force was killed before it replaced a file.
    case.write("out/.shard-00001.parquet.plmkit-tmp", "half a shard");
    case.write("out/.manifest.json.plmkit-tmp-1-0", "half a manifest");
    case.write("out/.notes.txt.plmkit-tmp", "another program's");
    case.fails("a.fasta --shards 2", 73, "shards was 3 and is now 2");
    case.says("a.fasta --shards 3", "already complete");
    fs::remove_file(case.path("out/.notes.txt.plmkit-tmp")).expect("left alone");
    assert!(case.files() == whole);
}

#[test]
fn other_work_is_replaced_only_by_force() {
    let case = case();
    case.write("other.fasta", proteins(50, 8));
    case.succeeds("a.fasta --shards 3");
    let before = case.files();
    let shards = "exists and holds other work (shards was 3 and is now 2); --force replaces it";
    let policy = "long_policy was \"truncate\" and is now \"window\"";
    case.fails("a.fasta --shards 2", 73, shards);
    case.fails("a.fasta --shards 3 --long-policy window", 73, policy);
    case.fails("other.fasta --shards 3", 73, "the input is not the same");
    assert!(case.files() == before);
    case.succeeds("other.fasta --shards 2 --force");
    assert_eq!(case.files().len(), 4, "manifest, rejects and two shards");
    assert_eq!(case.rows().len(), 50);
}

#[test]
fn files_of_somebody_else_are_not_replaced() {
    for name in [
        "shard-00099.parquet",
        "known.parquet",
        "renamed.csv",
        "manifest.json",
    ] {
        let case = case();
        fs::create_dir(case.out()).expect("folder");
        case.write(&format!("out/{name}"), "{\"name\": \"mine\"}");
        let options = "a.fasta --shards 2 --force";
        case.fails(
            options,
            73,
            "exists, and is of no set of shards; expected another folder",
        );
        assert_eq!(fs::read(case.out().join(name)).expect("read").len(), 16);
    }
}

#[test]
fn a_damaged_set_is_not_complete() {
    let case = case();
    let refuses = |code, message: &str| case.fails("a.fasta --shards 2", code, message);
    case.succeeds("a.fasta --shards 2");
    let [first, second, third] =
        [0, 1, 2].map(|index| case.out().join(format!("shard-0000{index}.parquet")));
    let whole = fs::read(&second).expect("read");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for bytes in [&damaged[..], &whole[..100]] {
        fs::write(&second, bytes).expect("write");
        refuses(65, "; --force replaces it");
    }
    fs::remove_file(&second).expect("remove");
    refuses(65, "shard-00001.parquet: missing");
    fs::copy(first, &second).expect("copy");
    let other = "shard-00001.parquet: exists and holds other work (not the shard of the manifest)";
    refuses(73, other);
    fs::write(&second, &whole).expect("write");
    fs::copy(&second, &third).expect("copy");
    let unlisted = "shard-00002.parquet: exists and holds other work (not in the manifest)";
    refuses(73, unlisted);
    fs::remove_file(third).expect("remove");
    case.write("out/rejects.csv", "ordinal,id,length,reason\n1,a,0,empty\n");
    refuses(
        65,
        "rejects.csv: damaged or altered: it has digest xxh3-128:",
    );
    case.succeeds("a.fasta --shards 2 --force");
    assert!(fs::read(&second).expect("read") == whole);
}

/// The changed lists have the same form and number of lines: only the digest differs.
#[test]
fn a_changed_value_of_the_rejects_is_detected() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>bcd\nM\n>e\nMKV\n");
    let args = "a.fasta --shards 1 --min-residues 2";
    case.succeeds(args);
    let path = case.out().join("rejects.csv");
    let whole = case.rejects();
    assert_eq!(whole, "ordinal,id,length,reason\n1,bcd,1,too_short\n");
    let lists = [
        ("bcd", "bce"),
        (",1,", ",0,"),
        ("\n1,", "\n0,"),
        ("t\n", "t\r\n"),
    ];
    for (value, other) in lists {
        fs::write(&path, whole.replace(value, other)).expect("write");
        case.fails(args, 65, "as in manifest.json; --force replaces it");
    }
    fs::write(&path, &whole).expect("write");
    case.says(args, "already complete");
}

#[test]
fn a_foreign_manifest_is_distinguished_from_a_damaged_one() {
    let case = case();
    case.succeeds("a.fasta --shards 2");
    let manifest = case.out().join("manifest.json");
    let whole = fs::read_to_string(&manifest).expect("read");
    let changed = whole.replace("\"records\": 400", "\"records\": 401");
    let damaged = "damaged or altered: it does not match its seal; --force replaces it";
    let foreign = "exists and holds other work (not a manifest of fasta-shard)";
    for (text, code, message) in [
        (&*changed, 65, damaged),
        ("{\"name\": \"a web app\"}", 73, foreign),
    ] {
        case.write("out/manifest.json", text);
        let message = format!("manifest.json: {message}");
        case.fails("a.fasta --shards 2", code, &message);
    }
    case.succeeds("a.fasta --shards 2 --force");
    assert!(fs::read_to_string(&manifest).expect("read") == whole);
}

#[test]
fn a_run_killed_while_publishing_is_repeated() {
    let case = case();
    case.succeeds("a.fasta --shards 3");
    let whole = case.files();
    fs::remove_file(case.out().join("manifest.json")).expect("remove");
    fs::remove_file(case.out().join("shard-00001.parquet")).expect("remove");
    case.write("out/.shard-00001.parquet.plmkit-tmp-1-0", "half a shard");
    let other = "shard-00000.parquet: exists and holds other work (shards was 3 and is now 2)";
    case.fails("a.fasta --shards 2", 73, other);
    let output = fed(case.command("- --shards 3"), proteins(400, 7));
    let once = "an unfinished set, and standard input cannot be read again";
    assert_failed(&output, 73, once);
    case.succeeds("a.fasta --shards 3");
    assert!(
        case.files() == whole,
        "the same files, and no temporary ones"
    );
}

#[test]
fn other_files_are_kept() {
    let case = case();
    fs::create_dir(case.out()).expect("folder");
    case.write("out/notes.txt", "mine");
    case.succeeds("a.fasta --shards 2");
    assert_eq!(fs::read(case.path("out/notes.txt")).expect("read"), b"mine");
    let case = self::case();
    fs::create_dir(case.out()).expect("folder");
    case.write("out/rejects.csv", "mine");
    let message = "rejects.csv: cannot create: exists, and is of no set of shards";
    case.fails("a.fasta --shards 2", 73, message);
}
