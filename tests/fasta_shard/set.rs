//! A set of shards as a whole: determinism, balance, what happens where one is already there.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::case::{Case, done, fed, proteins, refused, rows, stderr};

fn case() -> Case {
    let case = Case::new();
    case.write("a.fasta", proteins(400, 7));
    case
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    for options in [
        "--shards 5",
        "--max-shard-tokens 20000",
        "--shards 3 --long-policy split-off",
        "--shards 3 --long-policy window",
    ] {
        let made = |threads: usize| {
            let case = case();
            case.succeeds(&format!("a.fasta {options} --threads {threads}"));
            let folder = case.out();
            let files = case.files().into_iter().map(|(path, bytes)| {
                let path = path.strip_prefix(&folder).expect("inside");
                (path.to_owned(), bytes)
            });
            files.collect::<Vec<_>>()
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
        assert_eq!(
            (shard.rows, shard.residues),
            (rows.len() as u64, residues as u64)
        );
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

fn times(case: &Case) -> Vec<SystemTime> {
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified());
    let files = case.files().into_iter();
    files
        .map(|(path, _)| modified(&path).expect("a time"))
        .collect()
}

#[test]
fn a_complete_set_is_left_alone() {
    let case = case();
    case.write(
        "b.fasta.zst",
        zstd::encode_all(proteins(400, 7).as_bytes(), 3).expect("memory"),
    );
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
fn what_a_killed_run_left_beside_a_complete_set_goes() {
    let case = case();
    case.succeeds("a.fasta --shards 3");
    let whole = case.files();
    // As a run with --force leaves them that is killed before it has replaced anything.
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
    case.fails(
        "a.fasta --shards 2",
        73,
        "exists and holds other work (shards was 3 and is now 2); --force replaces it",
    );
    case.fails(
        "a.fasta --shards 3 --long-policy window",
        73,
        "long_policy was \"truncate\" and is now \"window\"",
    );
    case.fails("other.fasta --shards 3", 73, "the input is not the same");
    assert!(case.files() == before);
    case.succeeds("other.fasta --shards 2 --force");
    let expected = [
        "manifest.json",
        "rejects.csv",
        "shard-00000.parquet",
        "shard-00001.parquet",
    ];
    let files = case.files().into_iter().map(|(path, _)| path);
    assert!(files.eq(expected.map(|name| case.out().join(name))));
    assert_eq!(case.rows().len(), 50);
}

#[test]
fn a_damaged_set_is_not_complete() {
    let case = case();
    case.succeeds("a.fasta --shards 2");
    let shard = case.out().join("shard-00001.parquet");
    let whole = fs::read(&shard).expect("read");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for bytes in [&damaged[..], &whole[..100]] {
        fs::write(&shard, bytes).expect("write");
        case.fails("a.fasta --shards 2", 65, "; --force replaces it");
    }
    fs::remove_file(&shard).expect("remove");
    case.fails("a.fasta --shards 2", 65, "shard-00001.parquet: missing");
    fs::copy(case.out().join("shard-00000.parquet"), &shard).expect("copy");
    case.fails(
        "a.fasta --shards 2",
        73,
        "shard-00001.parquet: exists and holds other work (not the shard of the manifest)",
    );
    fs::write(&shard, &whole).expect("write");
    fs::copy(&shard, case.out().join("shard-00002.parquet")).expect("copy");
    case.fails(
        "a.fasta --shards 2",
        73,
        "shard-00002.parquet: exists and holds other work (not in the manifest)",
    );
    fs::remove_file(case.out().join("shard-00002.parquet")).expect("remove");
    fs::write(
        case.out().join("rejects.csv"),
        "ordinal,id,length,reason\n1,a,0,empty\n",
    )
    .expect("write");
    case.fails(
        "a.fasta --shards 2",
        65,
        "rejects.csv: damaged or altered: it has digest xxh3-128:",
    );
    case.succeeds("a.fasta --shards 2 --force");
    assert!(fs::read(&shard).expect("read") == whole);
}

/// Lines stay lines of as many records for the same reasons: only the digest tells.
#[test]
fn a_changed_value_of_the_rejects_is_found() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>bcd\nM\n>e\nMKV\n");
    let args = "a.fasta --shards 1 --min-residues 2";
    case.succeeds(args);
    let path = case.out().join("rejects.csv");
    let whole = case.rejects();
    assert_eq!(whole, "ordinal,id,length,reason\n1,bcd,1,too_short\n");
    for (value, other) in [
        ("bcd", "bce"),
        (",1,", ",0,"),
        ("\n1,", "\n0,"),
        ("t\n", "t\r\n"),
    ] {
        fs::write(&path, whole.replace(value, other)).expect("write");
        let message = "as in manifest.json; --force replaces it";
        case.fails(args, 65, message);
    }
    fs::write(&path, &whole).expect("write");
    let output = case.command(args).output().expect("run");
    done(&output);
    assert!(stderr(&output).contains("already complete"));
}

#[test]
fn a_manifest_of_others_is_told_from_a_damaged_one() {
    let case = case();
    case.succeeds("a.fasta --shards 2");
    let manifest = case.out().join("manifest.json");
    let whole = fs::read_to_string(&manifest).expect("read");
    fs::write(
        &manifest,
        whole.replace("\"records\": 400", "\"records\": 401"),
    )
    .expect("write");
    case.fails(
        "a.fasta --shards 2",
        65,
        "manifest.json: damaged or altered: it does not match its seal; --force replaces it",
    );
    fs::write(&manifest, "{\"name\": \"a web app\"}").expect("write");
    case.fails(
        "a.fasta --shards 2",
        73,
        "manifest.json: exists and holds other work (not a manifest of fasta-shard)",
    );
    case.succeeds("a.fasta --shards 2 --force");
    assert!(fs::read_to_string(&manifest).expect("read") == whole);
}

#[test]
fn a_run_killed_while_it_named_its_files_is_done_again() {
    let case = case();
    case.succeeds("a.fasta --shards 3");
    let whole = case.files();
    fs::remove_file(case.out().join("manifest.json")).expect("remove");
    fs::remove_file(case.out().join("shard-00001.parquet")).expect("remove");
    case.write("out/.shard-00001.parquet.plmkit-tmp-1-0", "half a shard");
    case.fails(
        "a.fasta --shards 2",
        73,
        "shard-00000.parquet: exists and holds other work (shards was 3 and is now 2)",
    );
    let output = fed(case.command("- --shards 3"), proteins(400, 7));
    refused(
        &output,
        73,
        "an unfinished set, and standard input cannot be read again",
    );
    case.succeeds("a.fasta --shards 3");
    assert!(
        case.files() == whole,
        "as if it had not been killed, and nothing left over"
    );
}

#[test]
fn files_of_others_are_left_alone() {
    let case = case();
    fs::create_dir(case.out()).expect("folder");
    case.write("out/notes.txt", "mine");
    case.succeeds("a.fasta --shards 2");
    assert_eq!(
        fs::read_to_string(case.path("out/notes.txt")).expect("read"),
        "mine"
    );
    let case = self::case();
    fs::create_dir(case.out()).expect("folder");
    case.write("out/rejects.csv", "mine");
    case.fails(
        "a.fasta --shards 2",
        73,
        "rejects.csv: exists and holds other work",
    );
}
