//! Nothing is computed twice: `fasta-shard --dedup` and `--known`, embedded by the real programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use plmkit_contract::{KeyColumns, Kind, alias_rows};
use plmkit_store::{EmbeddingsReader, RecordListReader, read_shard};
use tempfile::TempDir;

use crate::common::{assert_fails, command, files_in, model_of, run, test_data, tree};
use crate::files::{inputs, json};

const MODEL: &str = "--model model-tiny --device cpu --threads 1 --progress none";

/// Records, each with its header.
pub(crate) fn records() -> Vec<String> {
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("proteins");
    text.split('>')
        .skip(1)
        .map(|record| format!(">{record}"))
        .collect()
}

/// Copies of records under other ids, in lower case and with a stop codon.
pub(crate) fn copies(records: &[String]) -> Vec<String> {
    let copy = |record: &String| {
        let (_, sequence) = record.split_once('\n').expect("a header");
        let id = record[1..].split_whitespace().next().expect("an id");
        format!(
            ">copy-{id} again\n{}*\n",
            sequence.trim_end().to_lowercase()
        )
    };
    records.iter().map(copy).collect()
}

/// Runs the chain on records, into the folder of a sample.
pub(crate) fn sample(folder: &Path, name: &str, records: &[String], options: &str, embed: &str) {
    let options = format!("--sample {name} {options}");
    results(folder, name, records, &options, embed);
}

/// Runs the chain on records, into a folder of results.
pub(crate) fn results(folder: &Path, name: &str, records: &[String], options: &str, embed: &str) {
    fs::write(folder.join(format!("{name}.fasta")), records.concat()).expect("write");
    let shard = format!("fasta-shard {name}.fasta --out {name}/shards {options}");
    run(&mut command(folder, &shard));
    for made in ["embeddings", "rejects"] {
        fs::create_dir_all(folder.join(name).join(made)).expect("folder");
    }
    for shard in files_in(&folder.join(name).join("shards"), "shard-") {
        let shard = shard.trim_end_matches(".parquet");
        let batches = format!("{name}/{shard}.arrow");
        run(&mut command(
            folder,
            &format!("pack-batches {name}/shards/{shard}.parquet --out {batches}"),
        ));
        let out = format!("{name}/embeddings/{shard}.parquet --rejects {name}/rejects/{shard}.csv");
        let embed = format!("gpu-embed {batches} --out {out} {MODEL}{embed}");
        let output = command(folder, &embed).output().expect("run");
        let listed_some = output.status.code() == Some(1);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || listed_some, "{stderr}");
    }
}

pub(crate) fn validate(folder: &Path, name: &str) {
    run(&mut command(
        folder,
        &format!("validate-embeddings --dataset {name} --max-rejected 20%"),
    ));
}

/// The vectors of a sample, by ordinal and start.
pub(crate) fn vectors(folder: &Path, name: &str) -> BTreeMap<(u64, u32), (String, Vec<f32>)> {
    let mut vectors = BTreeMap::new();
    let embeddings = folder.join(name).join("embeddings");
    for file in files_in(&embeddings, "") {
        let mut reader = EmbeddingsReader::open(&embeddings.join(file)).expect("open");
        while let Some(batch) = reader.next_batch().expect("rows") {
            for (row, key) in KeyColumns::new(&batch).rows().enumerate() {
                let vector = batch["mean_4"].as_fixed_size_list().value(row);
                let vector = vector
                    .as_primitive::<arrow_array::types::Float32Type>()
                    .values()
                    .to_vec();
                vectors.insert(key.sort_key(), (key.id.to_owned(), vector));
            }
        }
    }
    vectors
}

/// The vectors of a sample by id, with those of its aliases and of its known records.
pub(crate) fn expanded(folder: &Path, name: &str, known: &[&str]) -> BTreeMap<String, Vec<f32>> {
    let own = vectors(folder, name);
    let known: Vec<_> = known.iter().map(|name| vectors(folder, name)).collect();
    let mut by_id: BTreeMap<String, Vec<f32>> = own.values().cloned().collect();
    for (file, kind) in [
        ("aliases.parquet", Kind::Aliases),
        ("known.parquet", Kind::Known),
    ] {
        let path = folder.join(name).join("shards").join(file);
        if !path.exists() {
            continue;
        }
        let mut reader = RecordListReader::open(&path, kind).expect("open");
        while let Some(batch) = reader.next_batch().expect("rows") {
            for row in alias_rows(&batch) {
                let of = row.dataset.map_or(&own, |dataset| &known[dataset as usize]);
                let vector = of[&(row.representative, 0)].1.clone();
                assert!(
                    by_id.insert(row.key.id.to_owned(), vector).is_none(),
                    "{}",
                    row.key.id
                );
            }
        }
    }
    by_id
}

/// The ids of the rows in the shards of a sample.
fn shard_ids(folder: &Path, name: &str) -> Vec<String> {
    let shards = folder.join(name).join("shards");
    let ids = files_in(&shards, "shard-").into_iter().flat_map(|file| {
        let shard = read_shard(&shards.join(file)).expect("a shard");
        let ids: Vec<String> = shard
            .rows()
            .iter()
            .map(|row| row.key.id.to_owned())
            .collect();
        ids
    });
    let mut ids: Vec<String> = ids.collect();
    ids.dedup();
    ids
}

fn id(record: &str) -> String {
    record[1..]
        .split_whitespace()
        .next()
        .expect("an id")
        .to_owned()
}

#[test]
fn aliases_have_the_vectors_of_a_run_without_dedup() {
    for options in [
        "--max-shard-tokens 12000 --max-residues 200",
        "--shards 2 --max-residues 200 --overlap 50 --long-policy window",
    ] {
        let folder = inputs();
        let folder = folder.path();
        let mut all = records();
        let copies = copies(&all[5..35]);
        all.splice(50..50, copies);
        sample(folder, "plain", &all, options, "");
        sample(folder, "dedup", &all, &format!("{options} --dedup"), "");
        validate(folder, "plain");
        validate(folder, "dedup");
        let report = json(&folder.join("dedup/dataset.json"));
        assert_eq!(
            (&report["aliases"], &report["known"]),
            (&30.into(), &0.into())
        );
        assert_eq!(shard_ids(folder, "dedup").len(), 100);
        assert!(
            expanded(folder, "dedup", &[]) == expanded(folder, "plain", &[]),
            "{options}"
        );
    }
}

#[test]
fn sequences_of_earlier_datasets_are_left_out_wherever_they_are() {
    for options in [
        "--shards 2 --max-residues 200",
        "--shards 1 --max-residues 200 --overlap 50 --long-policy window",
    ] {
        let folder = inputs();
        let folder = folder.path();
        let (old, all) = (&records()[..60], records());
        let (second, new) = (&all[60..97], &all[97..]);
        sample(folder, "old", old, options, "");
        validate(folder, "old");
        fs::remove_dir_all(folder.join("old/shards")).expect("the archive has no shards");
        let known = "--known old";
        sample(
            folder,
            "second",
            &[second, &old[10..]].concat(),
            &format!("{options} {known}"),
            "",
        );
        validate(folder, "second");
        let known = "--known old/dataset.json --known second --dedup";
        let again = copies(&[&old[..4], new].concat());
        let orders = [
            [new, old, second, &again].concat(),
            [old, new, &again, second].concat(),
            [&again[..4], old, second, new, &again[4..]].concat(),
        ];
        for (number, records) in orders.iter().enumerate() {
            let name = format!("new-{number}");
            sample(folder, &name, records, &format!("{options} {known}"), "");
            validate(folder, &name);
            let new: Vec<String> = new.iter().map(|record| id(record)).collect();
            let mut found = shard_ids(folder, &name);
            found.sort();
            let mut expected = new.clone();
            expected.sort();
            assert_eq!(found, expected);
            let report = json(&folder.join(&name).join("dataset.json"));
            assert_eq!(
                (&report["aliases"], &report["known"]),
                (&3.into(), &101.into())
            );
            assert_eq!(report["known_datasets"][1]["sample"], "second");
            if number == 0 {
                sample(folder, "plain", records, options, "");
            }
            let joined = expanded(folder, &name, &["old", "second"]);
            assert!(
                joined == expanded(folder, "plain", &[]),
                "{options}: {number}"
            );
        }
    }
}

/// A sample `old` of ten records, and a sample `new` with one more, a copy of that one, and the ten known ones.
pub(crate) fn old_and_new() -> TempDir {
    let folder = inputs();
    let all = records();
    sample(folder.path(), "old", &all[..10], "--shards 1", "");
    validate(folder.path(), "old");
    let new = [&all[..11], &copies(&all[10..11])].concat();
    sample(
        folder.path(),
        "new",
        &new,
        "--shards 1 --dedup --known old",
        "",
    );
    folder
}

#[test]
fn new_embeddings_are_made_like_those_of_the_known_dataset() {
    let folder = old_and_new();
    let folder = folder.path();
    for (options, what) in [
        (
            "--pool max",
            "expected columns [\"mean_4\"], found [\"max_4\"]",
        ),
        ("--dtype int8", "expected dtype \"f32\", found \"int8\""),
        (
            "--store-dtype f16",
            "expected store_dtype \"f32\", found \"f16\"",
        ),
    ] {
        let line = format!("gpu-embed new/shard-00000.arrow --out other.parquet {MODEL} {options}");
        assert_fails(command(folder, &line), 65, what);
    }
}

#[test]
fn a_dataset_that_cannot_be_joined_is_refused() {
    let folder = old_and_new();
    let folder = folder.path();
    let refused = |options: &str, code: i32, what: &str| {
        let line = format!("fasta-shard new.fasta --out refused --shards 1 --known old {options}");
        assert_fails(command(folder, line.trim_end()), code, what);
        assert!(!folder.join("refused").exists());
    };
    for (options, what) in [
        (
            "--max-residues 500",
            "expected --max-residues 1022, with which this dataset was made, found 500",
        ),
        (
            "--long-policy window",
            "expected --long-policy truncate, with which this dataset was made, found window",
        ),
        ("--known old/dataset.json", "given more than once"),
    ] {
        refused(options, 65, &format!("old/dataset.json: {what}"));
    }
    refused("--known nowhere", 66, "nowhere/dataset.json: cannot open");
    let file = folder.join("old/dataset.json");
    let whole = fs::read_to_string(&file).expect("read");
    fs::write(&file, whole.replacen("1022", "1023", 1)).expect("write");
    refused("", 65, "old/dataset.json: ");
    fs::write(&file, &whole).expect("write");
    let part = folder.join("old/embeddings/shard-00000.parquet");
    let bytes = fs::read(&part).expect("read");
    fs::copy(folder.join("new/embeddings/shard-00000.parquet"), &part).expect("copy");
    refused("", 65, "not the part that dataset.json lists");
    let mut damaged = bytes.clone();
    damaged[8] ^= 1;
    fs::write(&part, damaged).expect("write");
    refused("", 65, "old/embeddings/shard-00000.parquet: ");
    fs::remove_file(&part).expect("remove");
    refused("", 66, "cannot open");
    fs::write(&part, bytes).expect("write");
    // A reference that is not met, and no earlier verdict: it is written, and negative.
    fs::remove_file(&file).expect("remove");
    let line = "validate-embeddings --dataset old --reference new/embeddings/shard-00000.parquet";
    assert_eq!(
        command(folder, line).output().expect("run").status.code(),
        Some(1)
    );
    refused(
        "",
        65,
        "expected a dataset whose validation passed, found outcome 'fail'",
    );
    let windows = "--shards 1 --max-residues 100 --overlap 50 --long-policy window";
    sample(
        folder,
        "windows",
        &records()[..10],
        windows,
        " --windows separate",
    );
    validate(folder, "windows");
    let line = format!("fasta-shard new.fasta --out refused {windows} --known windows");
    assert_fails(command(folder, &line), 65, "found --windows separate");
}

#[test]
fn a_known_dataset_is_not_replaced() {
    let folder = old_and_new();
    let folder = folder.path();
    let before = tree(&folder.join("old"));
    let refused = |known: &str, out: &str, what: &str| {
        let line = format!("fasta-shard new.fasta --known {known} --out {out} --shards 1 --force");
        assert_fails(command(folder, &line), 2, what);
        assert!(tree(&folder.join("old")) == before, "{line}");
    };
    let outside = "expected a place outside the folder of --known";
    for out in ["old", "old/embeddings", "old/shards", "old/new/set"] {
        refused("old", out, outside);
        refused("old/dataset.json", out, outside);
    }
    fs::rename(folder.join("old/embeddings"), folder.join("parts")).expect("rename");
    symlink("../parts", folder.join("old/embeddings")).expect("link");
    refused(
        "old",
        "parts",
        "expected an input that is no file of the set",
    );
}

#[test]
fn embeddings_that_are_unlike_the_known_dataset_fail_the_validation() {
    let folder = old_and_new();
    let folder = folder.path();
    let mut weights = fs::read(test_data("model-tiny/model.safetensors")).expect("weights");
    weights[600_000] ^= 1;
    for (known, embed, what) in [
        (
            "pooled",
            " --pool max",
            "expected columns [\"max_4\"], found [\"mean_4\"]",
        ),
        (
            "half",
            " --dtype int8",
            "expected dtype \"int8\", found \"f32\"",
        ),
        ("weighed", "", "expected model "),
    ] {
        if known == "weighed" {
            fs::remove_file(folder.join("model-tiny")).expect("remove");
            model_of(folder, "model-tiny", &weights);
        }
        sample(folder, known, &records()[..10], "--shards 1", embed);
        validate(folder, known);
        // The embeddings are those of shards whose known dataset is `old`.
        let options = format!("--shards 1 --dedup --known {known} --sample new --force");
        let shard = format!("fasta-shard new.fasta --out new/shards {options}");
        run(&mut command(folder, &shard));
        let line = "validate-embeddings --dataset new --report -";
        let output = command(folder, line).output().expect("run");
        assert_eq!(output.status.code(), Some(1));
        let report = String::from_utf8_lossy(&output.stdout);
        let what = format!("not made as the known datasets: {what}").replace('"', "\\\"");
        assert!(report.contains(&what), "{what}: {report}");
    }
}

#[test]
fn a_missing_damaged_or_stale_list_is_found() {
    let folder = old_and_new();
    let folder = folder.path();
    validate(folder, "new");
    let before = fs::read(folder.join("new/dataset.json")).expect("read");
    let verdict = |code: i32, what: &str| {
        let mut validate = command(folder, "validate-embeddings --dataset new");
        let output = validate.output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(what), "{what}: {stderr}");
    };
    let other = [&records()[..12], &copies(&records()[11..12])].concat();
    sample(
        folder,
        "other",
        &other,
        "--shards 1 --dedup --known old",
        "",
    );
    for list in ["aliases.parquet", "known.parquet"] {
        let path: PathBuf = folder.join("new/shards").join(list);
        let whole = fs::read(&path).expect("read");
        fs::remove_file(&path).expect("remove");
        verdict(66, &format!("new/shards/{list}: "));
        let mut damaged = whole.clone();
        damaged[20] ^= 4;
        fs::write(&path, damaged).expect("write");
        verdict(65, &format!("new/shards/{list}: "));
        assert!(fs::read(folder.join("new/dataset.json")).expect("read") == before);
        if list == "aliases.parquet" {
            fs::copy(folder.join("other/shards").join(list), &path).expect("copy");
            verdict(1, "not the list of the manifest: expected rows");
            verdict(1, "ordinals: ");
        }
        fs::write(&path, whole).expect("write");
        validate(folder, "new");
    }
    fs::copy(
        folder.join("new/shards/aliases.parquet"),
        folder.join("old/shards/aliases.parquet"),
    )
    .expect("copy");
    let output = command(folder, "validate-embeddings --dataset old")
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the manifest lists no such file"));
}
