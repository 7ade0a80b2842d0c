//! `plmkit search`, compared with a run on the queries and `query-embeddings neighbours`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{assert_failed, assert_fails, command, run, test_data};
use crate::{copy_as_f16, copy_model, plmkit, proteins, with_model};

/// The command, with a folder of its own for temporary files.
fn search(folder: &Path, line: &str) -> Command {
    fs::create_dir_all(folder.join("temporary")).expect("folder");
    let mut search = command(folder, &format!("plmkit search {line}"));
    search.args(["--device", "cpu"]);
    search.env("TMPDIR", folder.join("temporary"));
    search
}

/// What is printed, once nothing else is left.
fn printed(folder: &Path, line: &str) -> String {
    let output = search(folder, line).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    assert!(is_empty(&folder.join("temporary")), "{line}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

/// The rows of a table, by the names of its columns.
fn rows(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines().map(|line| line.split('\t'));
    let names: Vec<&str> = lines.next().expect("a header").collect();
    let rows = lines.map(|cells| names.iter().copied().zip(cells).collect());
    rows.collect()
}

fn column<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    rows(text).iter().map(|row| row[name]).collect()
}

#[test]
fn hits_are_those_of_a_run_and_of_neighbours() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "t.fasta", 40);
    proteins(folder, "few.fasta", 4);
    let few = fs::read_to_string(folder.join("few.fasta")).expect("read");
    let long = "MKVLAAGIVGLCAKAYFGHW".repeat(60);
    fs::write(folder.join("q.fasta"), format!("{few}>long one\n{long}\n")).expect("write");
    let neighbours = "query\ttarget\trank\tscore";
    for (how, options, columns) in [
        ("", "--top 4", ""),
        (
            "--description",
            "--metric dot",
            "\tquery_description\ttarget_description",
        ),
        (
            "--pool max,mean --residues --layers 2,4",
            "--column max_2 --top 3",
            "",
        ),
        (
            "--long-policy window --store-dtype=f16 --max-residues=300",
            "--metric euclidean",
            "",
        ),
        (
            "--long-policy window --windows=separate --max-residues 200 --overlap 50",
            "--min-score 0.9",
            "\tquery_start\ttarget_start",
        ),
        (
            "--long-policy separate --max-residues 150",
            "--top 2 --threads 1",
            "",
        ),
    ] {
        let words = shlex::split(how).expect("words");
        for name in ["t", "q"] {
            let line = format!("{name}.fasta --out {name} --force");
            run(plmkit(folder, &line).args(&words));
        }
        let line = format!("query-embeddings neighbours q t {options} --force --out hand.tsv");
        run(&mut command(folder, &line));
        let hand = fs::read_to_string(folder.join("hand.tsv")).expect("a table");
        let found = printed(folder, &format!("q.fasta t {options}"));
        let header = found.lines().next().expect("a header");
        assert_eq!(header, format!("{neighbours}{columns}"), "{how}");
        let (found, mut hand) = (rows(&found), rows(&hand));
        for row in &mut hand {
            row.retain(|name, _| found[0].contains_key(name));
        }
        assert!(found == hand, "{how}");
        // Of the same FASTA, no record is a hit of itself.
        let of_column = options.split(' ').take_while(|word| *word != "--top");
        let of_column: Vec<&str> = of_column.filter(|_| how.contains("max,mean")).collect();
        let line = format!("t.fasta t/t --top 1 {}", of_column.join(" "));
        let found = printed(folder, line.trim_end());
        assert!(
            rows(&found).iter().all(|row| row["query"] != row["target"]),
            "{how}"
        );
    }
    run(&mut search(folder, "q.fasta t --out hits.parquet"));
    assert_fails(
        &mut search(folder, "q.fasta t --top 1 --quiet --out hits.parquet"),
        73,
        "hits.parquet: exists; --force writes it again",
    );
    // Only hits are replaced by hits.
    run(&mut search(folder, "q.fasta t --out hits.parquet --force"));
    let hits = fs::read(folder.join("hits.parquet")).expect("read");
    fs::write(folder.join("cut.parquet"), &hits[..hits.len() / 2]).expect("write");
    fs::write(folder.join("other.tsv"), "query\ttarget\tbits\n").expect("write");
    for name in [
        "cut.parquet",
        "other.tsv",
        "t/t/embeddings/shard-00000.parquet",
    ] {
        let line = format!("q.fasta t --quiet --force --out {name}");
        let output = search(folder, &line).output().expect("run");
        assert!(
            [Some(73), Some(2)].contains(&output.status.code()),
            "{name}"
        );
    }
}

#[test]
fn equal_sequences_are_left_out_and_more_hits_take_their_places() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "some.fasta", 8);
    let copies = ">copy\nmktayiakqrqisfvk*\n>other\nMKTAYIAKQRQISFVK\n>near\nMKTAYIAKQRQISFVR\n";
    let some = fs::read_to_string(folder.join("some.fasta")).expect("read");
    fs::write(folder.join("t.fasta"), format!("{some}{copies}")).expect("write");
    fs::write(folder.join("q.fasta"), ">q\nMKTAYIAKQRQISFVK\n").expect("write");
    for (options, expected) in [
        ("--pool mean", ["copy", "other", "near"].as_slice()),
        ("--dedup", &["copy", "near"]),
    ] {
        run(&mut plmkit(
            folder,
            &format!("t.fasta --out t --force {options}"),
        ));
        let found = printed(folder, "q.fasta t --top 4");
        assert_eq!(
            column(&found, "target")[..expected.len()],
            *expected,
            "{options}"
        );
        let said = run(&mut search(folder, "q.fasta t"));
        let what = "t: no hits of 1 record, whose residues another has";
        assert_eq!(said.contains(what), options == "--dedup", "{said}");
        let found = printed(folder, "q.fasta t --top 4 --no-self");
        assert_eq!(column(&found, "target")[0], "near", "{options}");
        assert_eq!(column(&found, "rank"), ["1", "2", "3", "4"], "{options}");
    }
}

#[test]
fn queries_come_from_standard_input_and_results_from_several_folders() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    fs::write(folder.join("b.fasta"), ">b1\nMKVLAAGIVGLC\n").expect("write");
    for name in ["a", "b"] {
        run(&mut plmkit(
            folder,
            &format!("{name}.fasta --out of-{name}"),
        ));
    }
    run(&mut plmkit(folder, "b.fasta --out cut --max-residues=8"));
    fs::write(folder.join("q.fasta"), ">q\nMKVLAAGIVGLC\n").expect("write");
    let what = "samples were cut in different ways; queries are cut as the first one was";
    for (results, differ) in [("of-a cut", true), ("of-a of-b", false)] {
        let said = run(&mut search(folder, &format!("q.fasta {results}")));
        assert_eq!(said.contains(what), differ, "{said}");
    }
    let said = run(&mut search(folder, "q.fasta of-a --max-residues=9"));
    let what = "the results were cut with --max-residues=1022, the queries are cut otherwise";
    assert!(said.contains(what), "{said}");
    let text = zstd::encode_all(&b">q\nMKVLAAGIVGLC\n>none\n\n"[..], 3).expect("zstd");
    let mut found = search(folder, "- of-a of-b --top 2");
    found
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = found.spawn().expect("plmkit");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&text).expect("write");
    drop(input);
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    // A record without residues has no hits.
    assert_eq!(output.status.code(), Some(1), "{said}");
    let what = "-: 1 record without a vector, and so without hits, such as 'none' (empty)";
    assert!(said.contains(what), "{said}");
    let found = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(column(&found, "query"), ["q", "q"]);
    assert_eq!(rows(&found)[0]["target"], "b1");
    assert_eq!(column(&found, "target_sample"), ["b", "a"]);
}

#[test]
fn the_model_is_found_or_named_and_another_one_is_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    proteins(folder, "b.fasta", 4);
    fs::write(folder.join("q.fasta"), ">q\nMKVLAAGIVGLC\n").expect("write");
    copy_model("model-tiny", &folder.join("mine"));
    let mine = folder.join("mine");
    run(&mut with_model(folder, &mine, "a.fasta --out results"));
    let lines = |options: &str| printed(folder, &format!("q.fasta results {options}"));
    let found = lines("--top 3");
    fs::rename(&mine, folder.join("moved")).expect("rename");
    let refused = |line: &str, code, what: &str| {
        let output = search(folder, line).arg("--quiet").output().expect("run");
        assert_failed(&output, code, what);
        assert!(output.stdout.is_empty(), "{line}");
        assert!(is_empty(&folder.join("temporary")), "{line}");
    };
    refused(
        "q.fasta results/a",
        66,
        "the model of results/a is 'mine' (1eba6091aa453c0a693a9dc3714b6925), which is not found: expected --model with its path",
    );
    assert_eq!(lines("--top 3 --model moved"), found);
    let other = test_data("model-tiny-1v");
    run(&mut with_model(
        folder,
        &other,
        "b.fasta --out other --layers 2",
    ));
    copy_model("model-tiny-1v", &folder.join("shallow"));
    let weights = folder.join("moved/model.safetensors");
    let mut bytes = fs::read(&weights).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&weights, bytes).expect("write");
    for (line, code, what) in [
        (
            "q.fasta results --model moved",
            65,
            "moved: another model, with the digest ",
        ),
        (
            "q.fasta results other",
            65,
            "other/b: different models or options: ",
        ),
        ("q.fasta results other", 65, "; models mine, model-tiny-1v"),
        (
            "none.fasta results",
            66,
            "none.fasta: cannot open: no such file",
        ),
        ("q.fasta none", 66, "none: no such file or folder"),
        (
            "q.fasta results --column max_4",
            65,
            "expected a column 'max_4', found mean_4",
        ),
        (
            "q.fasta results --out results/a/embeddings/hits.tsv",
            2,
            "expected a place outside",
        ),
        (
            "q.fasta results --out q.fasta --format tsv",
            2,
            "--out and the queries are the same file",
        ),
        (
            "q.fasta results --out none/hits.tsv",
            73,
            "none/hits.tsv: cannot create",
        ),
        (
            "q.fasta results --out results/summary.tsv --force",
            73,
            "results/summary.tsv: exists, and is a file of other data",
        ),
        (
            "q.fasta results --out results/dataset.json --format tsv",
            73,
            "results/dataset.json: a name of plmkit's own files",
        ),
        (
            "q.fasta results --dedup",
            2,
            "unexpected argument '--dedup'",
        ),
        (
            "q.fasta results --model shallow",
            65,
            "; the model of results is 'mine'",
        ),
    ] {
        refused(line, code, what);
    }
}

#[test]
fn a_stopped_search_leaves_nothing() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "t.fasta", 5);
    run(&mut plmkit(
        folder,
        "t.fasta --out t --duplicate-ids=suffix",
    ));
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    fs::write(folder.join("q.fasta"), text.repeat(100)).expect("write");
    let mut child = search(folder, "q.fasta t --threads 1 --out hits.tsv")
        .spawn()
        .expect("plmkit");
    while is_empty(&folder.join("temporary")) && child.try_wait().expect("a child").is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    let id = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(id, Signal::TERM).expect("the program runs");
    let ended = child.wait().expect("an end");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended),
        Some(15)
    );
    assert!(is_empty(&folder.join("temporary")) && !folder.join("hits.tsv").exists());
}

#[test]
fn a_model_of_the_hub_is_found_by_its_commit() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "t.fasta", 3);
    let id = "some/tiny@0123456789abcdef0123456789abcdef01234567";
    let (name, commit) = id.split_once('@').expect("a commit");
    let cache = folder.join("hub");
    let [snapshots, refs] =
        ["snapshots", "refs"].map(|part| cache.join("models--some--tiny").join(part));
    fs::create_dir_all(&snapshots).expect("folder");
    fs::create_dir(&refs).expect("folder");
    copy_model("model-tiny", &snapshots.join(commit));
    fs::write(refs.join("main"), commit).expect("write");
    let mut embed = with_model(folder, name.as_ref(), "t.fasta --out t");
    run(embed.env("HF_HUB_CACHE", &cache));
    // The branch has moved on.
    fs::write(refs.join("main"), "f".repeat(40)).expect("write");
    run(search(folder, "t.fasta t").env("HF_HUB_CACHE", &cache));
    let mut search = search(folder, "t.fasta t");
    let what = format!("; plmkit fetch {id} or --download fetches it");
    assert_fails(search.env("HF_HUB_CACHE", &refs), 66, &what);
}

/// Embeddings that say they are of another type, as those of a GPU.
#[test]
fn a_type_that_the_device_lacks_is_computed_in_f32() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "t.fasta", 5);
    fs::write(folder.join("q.fasta"), ">q\nMKVLAAGIVGLC\n").expect("write");
    run(&mut plmkit(folder, "t.fasta --out t"));
    let found = printed(folder, "q.fasta t --top 3");
    let path = folder.join("t/t/embeddings/shard-00000.parquet");
    copy_as_f16(&path, &folder.join("halves.parquet"));
    let line = "q.fasta halves.parquet --top 3";
    let model = test_data("model-tiny");
    let output = search(folder, line)
        .arg("--model")
        .arg(model)
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    let what = "halves.parquet: made in f16, which this device does not compute: the queries are computed in f32";
    assert!(output.status.success() && said.contains(what), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), found);
}
