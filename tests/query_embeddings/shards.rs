//! What the manifest beside the shards names is there and has its digest, whatever a command reads of it.

use std::fs;
use std::path::Path;

use crate::common::{assert_failed, command, run, test_data};

const OPTIONS: &str = "--dedup --duplicate-ids suffix --invalid reject";

/// The results of proteins that begin with tryptophan in several shards: one is a copy, one was renamed, one rejected.
fn results(folder: &Path, first: &str) {
    let residues = "ACDEFGHIKLMNPQRSTVWY";
    let record = |at: usize| format!(">w{at}\n{first}{}{}\n", &residues[at..], &residues[..at]);
    let mut fasta: Vec<String> = (0..12).map(record).collect();
    fasta.push(format!(
        ">copy\n{first}{residues}\n>empty\n\n>w1\n{first}AC\n"
    ));
    fs::write(folder.join("a.fasta"), fasta.concat()).expect("write");
    let mut plmkit = command(
        folder,
        "plmkit a.fasta --out results --max-shard-tokens 100 --quiet",
    );
    plmkit.args(OPTIONS.split(' ')).arg("--scores");
    plmkit.args(["--max-rejected=0.5"]);
    run(plmkit.arg("--model").arg(test_data("model-tiny")));
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).expect("folder");
    for file in fs::read_dir(from).expect("folder") {
        let file = file.expect("file");
        fs::copy(file.path(), to.join(file.file_name())).expect("copy");
    }
}

#[test]
fn what_the_manifest_names_is_there_and_as_it_was() {
    let [folder, other] = [(), ()].map(|()| tempfile::tempdir().expect("temp folder"));
    let [folder, other] = [folder.path(), other.path()];
    results(folder, "W");
    results(other, "M");
    let [shards, whole] = ["results/a/shards", "whole"].map(|name| folder.join(name));
    copy(&shards, &whole);
    let list = folder.join("results/a/dataset.json");
    let listed = fs::read(&list).expect("dataset.json");
    fs::write(folder.join("v.csv"), "id,variant\nw9,W1C\n").expect("write");
    let wrong = "id,variant\nw9,A1C\n";
    fs::write(folder.join("wrong.csv"), wrong).expect("write");
    let commands = [
        "query-embeddings variants results/a wrong.csv --strict",
        "query-embeddings variants results/a v.csv",
        "query-embeddings lookup results/a w1",
        "query-embeddings lookup results/a copy",
        "query-embeddings select results/a --id w1 --out new",
        "query-embeddings neighbours results/a results/a --column mean_4 --out new",
        "query-embeddings combine results/a --out new",
        "query-embeddings combine results/a --distinct --out new",
        "query-embeddings combine results/a --format tsv --column mean_4 --out new",
    ];
    let variants = command(folder, commands[0]).output().expect("it starts");
    assert_failed(&variants, 65, "expected A at position 1, found W");
    run(&mut command(folder, commands[1]));
    let of_other = |name: &str| {
        let from = other.join("results/a/shards").join(name);
        fs::copy(from, shards.join(name)).expect("copy");
    };
    let append = |name: &str| {
        let bytes = fs::read(shards.join(name)).expect("read");
        fs::write(shards.join(name), [&bytes[..], b"\n"].concat()).expect("write");
    };
    let missing = [
        "shard-00001.parquet",
        "aliases.parquet",
        "rejects.csv",
        "renamed.csv",
        "manifest.json",
    ];
    let changed = [
        (
            "other",
            "shard-00001.parquet",
            "expected rows xxh3-128-sum:",
        ),
        ("own", "shard-00001.parquet", "expected rows xxh3-128-sum:"),
        ("other", "aliases.parquet", "expected rows xxh3-128-sum:"),
        ("other", "manifest.json", "not the manifest of this dataset"),
        ("text", "manifest.json", "damaged or altered: it does"),
        ("text", "rejects.csv", "altered: expected digest xxh3-128:"),
        ("text", "renamed.csv", "altered: expected digest xxh3-128:"),
        ("more", "shard-00009.parquet", "not a shard of the dataset"),
    ];
    let missing = missing.map(|name| ("lost", name, "cannot open: no such file"));
    for (how, name, what) in missing.into_iter().chain(changed) {
        copy(&whole, &shards);
        match how {
            "lost" => fs::remove_file(shards.join(name)).expect("remove"),
            "other" => of_other(name),
            "text" => append(name),
            _ => _ = fs::copy(shards.join("shard-00000.parquet"), shards.join(name)).expect("copy"),
        }
        let code = if how == "lost" { 66 } else { 65 };
        let what = format!("results/a/shards/{name}: {what}");
        for line in commands {
            let output = command(folder, line).output().expect("it starts");
            assert_failed(&output, code, &what);
            assert!(output.stdout.is_empty() && !folder.join("new").exists());
        }
        // Not validated.
        fs::remove_file(&list).expect("remove");
        for line in &commands[..4] {
            let output = command(folder, line).output().expect("it starts");
            assert_failed(&output, code, &what);
        }
        fs::write(&list, &listed).expect("write");
        if (how == "lost") != (name == "renamed.csv") {
            let line = "validate-embeddings --dataset results/a";
            let output = command(folder, line).output().expect("it starts");
            assert_failed(&output, code, &format!("results/a/shards/{name}: "));
        }
    }
    // What needs no shards goes without them.
    fs::remove_dir_all(&shards).expect("remove");
    run(&mut command(folder, commands[2]));
    let variants = command(folder, commands[1]).output().expect("it starts");
    assert_failed(&variants, 66, "results/a/shards: expected shard-*.parquet");
}

#[test]
fn lost_files_of_shards_are_cut_again() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder, "W");
    let shards = folder.join("results/a/shards");
    for name in ["renamed.csv", "shard-00001.parquet"] {
        let text = fs::read(shards.join(name)).expect("a file");
        fs::remove_file(shards.join(name)).expect("remove");
        results(folder, "W");
        assert!(
            fs::read(shards.join(name)).expect("a file") == text,
            "{name}"
        );
    }
}
