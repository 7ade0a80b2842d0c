//! `combine` gives each record a row again, whatever `fasta-shard --dedup` and `--known` left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use plmkit_contract::SAMPLE;
use plmkit_store::EmbeddingsReader;

use crate::common::{all, assert_fails, command, files_in, poisoned_model, run};
use crate::duplicates::{
    copies, expanded, old_and_new, records, results, sample, validate, vectors,
};
use crate::files::{inputs, json};

#[test]
fn a_known_dataset_that_has_not_its_rows_is_not_combined() {
    let folder = old_and_new();
    let folder = folder.path();
    validate(folder, "new");
    let line = |known: &str| format!("query-embeddings combine new --known {known} --out all");
    let refused = |known: &str, code: i32, what: &str| {
        assert_fails(command(folder, &line(known)), code, what);
        assert!(!folder.join("all").exists());
    };
    refused("nowhere", 66, "nowhere: no such file or folder");
    sample(
        folder,
        "other",
        &records()[..10],
        "--shards 1",
        " --dtype int8",
    );
    validate(folder, "other");
    refused(
        "other",
        65,
        "other: expected a dataset that fasta-shard --known knew: old of 10 rows, xxh3-128-sum:",
    );
    let part = folder.join("old/embeddings/shard-00000.parquet");
    let bytes = fs::read(&part).expect("read");
    let mut damaged = bytes.clone();
    damaged[8] ^= 1;
    fs::write(&part, damaged).expect("write");
    refused("old", 65, "old/embeddings/shard-00000.parquet: damaged");
    fs::remove_file(&part).expect("remove");
    refused(
        "old",
        66,
        "old/embeddings/shard-00000.parquet: missing, though dataset.json lists it",
    );
    fs::write(&part, bytes).expect("write");
    run(&mut command(folder, &line("old")));
    // All records have rows, and the counts of the list say so.
    let report = json(&folder.join("all/dataset.json"));
    let counts = ["rows", "aliases", "known"].map(|name| report[name].as_u64());
    assert_eq!(counts, [Some(12), Some(0), Some(0)]);
    let of = |name: &str| -> BTreeMap<String, Vec<f32>> {
        vectors(folder, name).into_values().collect()
    };
    let expected = expanded(folder, "new", &["old"]);
    assert!(of("all") == expected);
    // The known dataset may have been combined itself.
    run(&mut command(
        folder,
        "query-embeddings combine old --out merged",
    ));
    fs::remove_dir_all(folder.join("all")).expect("remove");
    run(&mut command(folder, &line("merged")));
    assert!(of("all") == expected);
    // Killed after the folder got its name.
    fs::write(folder.join(".all.plmkit-lock"), "").expect("write");
    fs::create_dir_all(folder.join(".all.plmkit-old/embeddings")).expect("create");
    let said = run(&mut command(folder, &line("merged")));
    assert!(said.contains("all: already complete"), "{said}");
    let hidden = |name: &&String| name.starts_with(".all");
    assert_eq!(all(folder).iter().find(hidden), None);
    // Without the shards, the records of their lists cannot have rows.
    fs::remove_dir_all(folder.join("new/shards")).expect("remove");
    fs::remove_dir_all(folder.join("all")).expect("remove");
    refused(
        "old --distinct",
        66,
        "new/shards/known.parquet: no such file: expected 10 records",
    );
    let combine = "query-embeddings combine new --out all";
    let aliases = "new/shards/aliases.parquet: no such file: expected 1 record of aliases";
    assert_fails(command(folder, combine), 66, aliases);
    let left = run(&mut command(folder, &format!("{combine} --distinct")));
    for what in [
        "all: --distinct: 1 record left out, because other records",
        "warning: all: 10 records left out, because earlier datasets have their residues",
    ] {
        assert!(left.contains(what), "{left}");
    }
}

#[test]
fn a_combined_dataset_is_like_that_of_a_run_without_duplicates() {
    for of_old in [" --sample old", ""] {
        let folder = inputs();
        let folder = folder.path();
        fs::remove_file(folder.join("model-tiny")).expect("remove");
        poisoned_model(folder, "model-tiny");
        let poisoned = [">poison\nMKOL\n".to_owned()];
        let records = &records()[..16];
        let all = [records, &poisoned].concat();
        let all = [copies(&all[9..]), all.clone()].concat();
        let options = "--shards 1 --max-residues 100 --dedup";
        let old = [&records[..10], &copies(&records[..3])].concat();
        results(folder, "old", &old, &format!("{options}{of_old}"), "");
        validate(folder, "old");
        let known = format!("{options} --known old");
        sample(folder, "new", &all, &known, "");
        validate(folder, "new");
        let plain = "--shards 1 --max-residues 100 --sample new";
        results(folder, "plain", &all, plain, "");
        validate(folder, "plain");
        let combine = |line: &str| command(folder, &format!("query-embeddings combine {line}"));
        run(&mut combine("old --out merged"));
        run(&mut combine("merged --rows-per-file 4 --out again"));
        for known in ["old", "merged", "again"] {
            run(&mut combine(&format!("new --known {known} --out all")));
            assert!(vectors(folder, "all") == vectors(folder, "plain"));
            assert_eq!(samples(folder, "all"), ["new"]);
            let [found, expected] =
                ["all", "plain"].map(|name| json(&folder.join(name).join("dataset.json")));
            for count in [
                "records",
                "rows",
                "truncated",
                "residues_truncated",
                "rejected",
                "aliases",
                "known",
            ] {
                assert_eq!(found[count], expected[count], "{count}");
            }
            assert_eq!(found["rejected"]["not_finite"], 2);
            let of_shards = json(&folder.join("new/dataset.json"));
            assert!(found["truncated"].as_u64() > of_shards["truncated"].as_u64());
            // It is judged by what was rejected of its parts.
            validate(folder, "all");
            let judged = command(folder, "validate-embeddings --dataset all").output();
            let judged = judged.expect("run");
            let said = String::from_utf8_lossy(&judged.stderr);
            assert_eq!(judged.status.code(), Some(1), "{said}");
            assert!(
                said.contains("rejected: 1 share of rejects too large"),
                "{said}"
            );
            assert!(said.contains("2 of 25 records are rejected"), "{said}");
            fs::remove_dir_all(folder.join("all")).expect("remove");
        }
        // Which rows of a combined dataset are copies, it does not say.
        let distinct = "merged --distinct --out distinct";
        assert_fails(
            combine(distinct),
            2,
            "--distinct: merged has rows of 3 records",
        );
        // Of the dataset that the parts were made of, the copies are not wanted: no more is to be done.
        let left = run(&mut combine("old --distinct --out distinct"));
        assert!(
            left.contains("3 records left out") && !left.contains("--known"),
            "{left}"
        );
    }
}

#[test]
fn the_lists_of_the_shards_are_those_that_were_validated() {
    let folder = inputs();
    let folder = folder.path();
    let short = [">short\nMK\n".to_owned()];
    let new = [&records()[..4], &copies(&records()[..2]), &short].concat();
    sample(
        folder,
        "new",
        &new,
        "--shards 1 --dedup --min-residues 3",
        "",
    );
    validate(folder, "new");
    sample(
        folder,
        "other",
        &records()[..4],
        "--shards 1 --dedup --min-residues 3",
        "",
    );
    let shards = |name: &str| folder.join(name).join("shards");
    for (file, what) in [
        ("rejects.csv", "altered: expected digest xxh3-128:"),
        (
            "manifest.json",
            "not the manifest of this dataset: expected ",
        ),
        ("aliases.parquet", "expected rows xxh3-128-sum:"),
    ] {
        let path = shards("new").join(file);
        let bytes = fs::read(&path).expect("read");
        let combine = |code: i32, what: &str| {
            let line = "query-embeddings combine new --out all";
            assert_fails(command(folder, line), code, what);
            assert!(!folder.join("all").exists());
        };
        fs::copy(shards("other").join(file), &path).expect("copy");
        combine(65, &format!("new/shards/{file}: {what}"));
        if file == "aliases.parquet" {
            let id = copies(&records()[..1])[0].split(' ').next().expect("an id")[1..].to_owned();
            let line = format!("query-embeddings lookup new {id}");
            assert_fails(command(folder, &line), 65, what);
        }
        fs::remove_file(&path).expect("remove");
        combine(66, &format!("new/shards/{file}: "));
        fs::write(&path, bytes).expect("write");
    }
    let combined = run(&mut command(
        folder,
        "query-embeddings combine new --out all",
    ));
    assert!(combined.contains("6 rows of 1 part"), "{combined}");
    assert_eq!(files_in(&folder.join("all/rejects"), ""), ["records.csv"]);
}

/// The samples in the rows of a combined dataset.
fn samples(folder: &Path, name: &str) -> Vec<String> {
    let mut samples = Vec::new();
    let embeddings = folder.join(name).join("embeddings");
    for file in files_in(&embeddings, "") {
        let mut reader = EmbeddingsReader::open(&embeddings.join(file)).expect("open");
        while let Some(batch) = reader.next_batch().expect("rows") {
            let names = batch[SAMPLE].as_string::<i32>();
            samples.extend(names.iter().flatten().map(str::to_owned));
        }
    }
    samples.sort();
    samples.dedup();
    samples
}
