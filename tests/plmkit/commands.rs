//! Subcommands, standard input, samples without a protein, and hints.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{assert_failed, command, run, test_data, tree};
use crate::{data, plmkit, proteins};

fn read_from(command: &mut Command, text: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("plmkit");
    let mut input = child.stdin.take().expect("a pipe");
    // One that refuses its input does not read it.
    let _ = input.write_all(text);
    drop(input);
    child.wait_with_output().expect("an end")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_estimate_has_the_lengths_of_the_shards_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    fs::write(
        folder.join("contigs.fna"),
        ">c\nATGGCTTGTGATGAATTTGGTCATATCAAAAGA\n",
    )
    .expect("write");
    for (number, options) in [
        "a.fasta",
        "a.fasta --max-shard-tokens 3000 --layers all --pool mean,max --residues",
        "a.fasta --long-policy window --max-residues=300",
        "a.fasta --long-policy separate --max-residues 200 --min-residues 50",
        "contigs.fna --translate six-frame --min-residues=3",
    ]
    .into_iter()
    .enumerate()
    {
        let words = shlex::split(options).expect("words");
        let before = tree(folder);
        let mut estimate = plmkit(folder, "estimate --report - --threads 2 --dtype f32");
        let found = estimate.args(&words).output().expect("plmkit");
        assert!(found.status.success(), "{}", said(&found));
        assert!(tree(folder) == before, "{options}");
        let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
        let out = format!("results-{number}");
        run(plmkit(folder, &format!("--quiet --out {out}")).args(&words));
        let of_shards = words.join(" ");
        let of_shards = of_shards.split(" --").filter(|option| {
            ["layers", "pool", "residues"]
                .iter()
                .any(|name| option.starts_with(name))
        });
        let columns: Vec<String> = of_shards.map(|option| format!("--{option}")).collect();
        let sample = words[0].split('.').next().expect("a name");
        let line = format!(
            "monitor-log estimate {out}/{sample}/shards --report - {}",
            columns.join(" ")
        );
        let mut by_shards = command(folder, line.trim());
        let by_shards = by_shards
            .arg("--model")
            .arg(test_data("model-tiny"))
            .output();
        let by_shards: Value =
            serde_json::from_slice(&by_shards.expect("run").stdout).expect("JSON");
        for name in [
            "sequences",
            "proteins",
            "tokens",
            "pairs",
            "residues",
            "residue_pairs",
            "shards",
            "columns",
            "embedding_bytes",
            "files",
        ] {
            assert_eq!(found[name], by_shards[name], "{options}: {name}");
        }
        let times = found["times"].as_array().expect("times");
        assert_eq!(times.len(), 1);
        assert!(times[0]["flops_per_s"].as_f64().expect("a rate") > 1e8);
        assert!(
            times[0]["device"]
                .as_str()
                .expect("a name")
                .starts_with("this CPU in f32 (")
        );
    }
    let windows = "a.fasta --long-policy window --max-residues 300 --windows separate";
    let windows = format!("estimate --quiet --report - {windows}");
    let windows = plmkit(folder, &windows).output().expect("plmkit");
    let windows: Value = serde_json::from_slice(&windows.stdout).expect("JSON");
    let rows = |name: &str| windows[name].as_u64().expect("a number");
    assert!(rows("sequences") > 40);
    assert_eq!(rows("proteins"), rows("sequences"), "a row for each window");
    let int8 = plmkit(folder, "estimate a.fasta --threads 2 --dtype int8").output();
    let int8 = String::from_utf8(int8.expect("plmkit").stdout).expect("UTF-8");
    for expected in [
        " MiB of weights on a CPU, by a formula, not measured\n",
        " on this CPU in int8 (",
    ] {
        assert!(int8.contains(expected), "{int8}");
    }
}

#[test]
fn an_estimate_is_refused_as_the_run_would_be() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    fs::write(folder.join("a.fasta"), ">a\nMK1\n").expect("write");
    let contig = ">c\nATGGCTTGTGATGAATTTGGTCATATCAAAAGA\n";
    fs::write(folder.join("contigs.fna"), contig).expect("write");
    for (arguments, code, what) in [
        (
            "estimate a.fasta",
            65,
            "a.fasta: record 1 'a': expected residues, found '1'",
        ),
        ("estimate none.fasta", 66, "none.fasta: cannot open"),
        (
            "estimate contigs.fna",
            65,
            "contigs.fna: expected proteins, found nucleic acids",
        ),
        (
            "estimate a.fasta --frobnicate",
            2,
            "unexpected argument '--frobnicate'",
        ),
        (
            "estimate --layers last",
            2,
            "required arguments were not provided: <INPUT>...",
        ),
        (
            "estimate a.fasta --dtype f16",
            2,
            "--dtype f16: not computed on this CPU",
        ),
        (
            "estimate a.fasta --layers 9 --invalid=x",
            2,
            "layer 9 does not exist",
        ),
    ] {
        assert_failed(
            &plmkit(folder, arguments).output().expect("run"),
            code,
            what,
        );
    }
    fs::copy(folder.join("a.fasta"), folder.join("estimate")).expect("copy");
    let file = plmkit(folder, "./estimate --out r --invalid=x --quiet");
    assert!({ file }.status().expect("run").success());
    assert!(folder.join("r/estimate/dataset.json").exists());
}

#[test]
fn a_model_that_is_there_is_fetched_without_a_network() {
    let folder = tempfile::tempdir().expect("temp folder");
    let hub = folder.path().join("hub");
    let fetch = |model: &str| {
        let mut fetch = command(folder.path(), &format!("plmkit fetch {model}"));
        fetch.env("HF_HUB_CACHE", &hub).env("HF_HUB_OFFLINE", "1");
        fetch.output().expect("run")
    };
    let model = test_data("model-tiny");
    let found = fetch(model.to_str().expect("a path"));
    assert_eq!(
        String::from_utf8_lossy(&found.stdout),
        format!("{}\n", model.display())
    );
    assert_failed(
        &fetch("a/b"),
        66,
        "HF_HUB_OFFLINE is set, so nothing is fetched",
    );
    assert_failed(
        &fetch("esm2_t6_8M_UR50D"),
        66,
        "is named with its owner, as in facebook/",
    );
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn standard_input_is_a_sample_that_a_second_run_reads_again() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "stdin.fasta", 6);
    let text = fs::read(folder.join("stdin.fasta")).expect("read");
    let mut expected = None;
    for (name, stage) in [
        ("-", ""),
        ("-", ""),
        ("/dev/stdin", ""),
        ("-", " --stage check"),
    ] {
        let line = format!("{name} --out piped --quiet{stage}");
        let output = read_from(&mut plmkit(folder, &line), &text);
        assert!(output.status.success(), "{}", said(&output));
        let found = data(&folder.join("piped"));
        assert!(
            *expected.get_or_insert_with(|| found.clone()) == found,
            "{line}"
        );
    }
    let expected = expected.expect("a run");
    let other = read_from(&mut plmkit(folder, "- --out piped --quiet"), b">a\nMKV\n");
    assert_eq!(other.status.code(), Some(73));
    assert!(said(&other).contains("(the input is not the same); --force replaces it"));
    // Killed while it published shards: they are made of what is read again.
    fs::remove_file(folder.join("piped/stdin/shards/manifest.json")).expect("remove");
    let again = read_from(&mut plmkit(folder, "- --out piped --quiet"), &text);
    assert!(again.status.success(), "{}", said(&again));
    assert!(data(&folder.join("piped")) == expected);
    // A lost shard is not made of the nothing that is left.
    fs::remove_file(folder.join("piped/stdin/shards/shard-00000.parquet")).expect("remove");
    let lost = read_from(
        &mut plmkit(folder, "- --out piped --quiet --allow-empty"),
        &text,
    );
    assert_eq!(lost.status.code(), Some(65), "{}", said(&lost));
    let forced = read_from(&mut plmkit(folder, "- --out piped --quiet --force"), &text);
    assert!(forced.status.success(), "{}", said(&forced));
    assert!(data(&folder.join("piped")) == expected);
    let two = read_from(&mut plmkit(folder, "- /dev/stdin --out two"), &text);
    assert_failed(&two, 2, "are both the sample 'stdin'");
}

#[test]
fn a_sample_without_a_protein_is_a_warning_unless_all_are() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    for (name, text) in [("none", ""), ("bad", ">a\nM1\n"), ("good", ">a\nMKV\n")] {
        fs::write(folder.join(format!("{name}.fasta")), text).expect("write");
    }
    for (number, (samples, code, what)) in [
        ("none good bad", 0, "warning: no record could be embedded, see SAMPLE/shards/rejects.csv and SAMPLE/rejects: none bad"),
        ("bad none", 1, "--allow-empty accepts it: bad none"),
        ("bad none --allow-empty", 0, "warning: no record could be embedded"),
        ("none", 65, "none.fasta: no FASTA records"),
        ("bad", 1, "--allow-empty accepts it: bad"),
    ]
    .into_iter()
    .enumerate()
    {
        let samples = samples.split(' ').map(|word| match word.strip_prefix("--") {
            Some(_) => word.to_owned(),
            None => format!("{word}.fasta"),
        });
        let line = samples.collect::<Vec<_>>().join(" ");
        let line = format!("{line} --out r{number} --invalid=reject");
        for _ in 0..2 {
            let output = plmkit(folder, &line).output().expect("run");
            assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
            assert!(said(&output).contains(what), "{line}: {}", said(&output));
        }
    }
    let summary = fs::read_to_string(folder.join("r0/summary.tsv")).expect("summary");
    let verdicts = summary.lines().filter_map(|line| line.split('\t').nth(7));
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        ["verdict", "empty", "pass", "empty"]
    );
}

/// The options that a message offers, with their values.
fn hints(message: &str) -> Vec<String> {
    let switches = ["--drop-blanks", "--pir"];
    let parts = message.match_indices(" --");
    let parts = parts.map(|(at, _)| &message[at + 1..]);
    let hint = |part: &str| {
        let mut words = part.split([' ', ',', ';']);
        let option = words.next().unwrap_or_default();
        let value = words.next().filter(|_| !switches.contains(&option));
        value.map_or(option.to_owned(), |value| format!("{option} {value}"))
    };
    parts.map(hint).collect()
}

#[test]
fn a_hint_can_be_typed_as_it_is() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("write");
    write("letter.fasta", ">a\nMK1\n>b\nMKV\n>c\nMKVL\n");
    write("no-id.fasta", "> \nMKV\n>b\nMKV\n");
    write("twice.fasta", ">a\nMKV\n>a\nMKV\n");
    write("dna.fasta", &format!(">a\n{}\n", "ACGTTGCA".repeat(40)));
    write("blanks.fasta", ">a\nMKV LA AC\nMKVLA\n");
    write("pir.fasta", ">P1;a\ntitle\nMKV*\n");
    write("long.fasta", &format!(">a\n{}\n", "MKVLA".repeat(300)));
    for (name, code, expected) in [
        ("letter", 65, &["--invalid x", "--invalid reject"][..]),
        ("no-id", 65, &["--invalid reject"]),
        ("twice", 65, &["--duplicate-ids drop-identical"]),
        ("dna", 65, &["--translate orf", "--alphabet protein"]),
        ("blanks", 65, &["--drop-blanks"]),
        ("pir", 65, &["--pir"]),
        ("long", 0, &["--long-policy window"]),
    ] {
        let line = format!("{name}.fasta --out {name}");
        let output = plmkit(folder, &line).output().expect("run");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        let said = said(&output);
        let message = said.lines().find(|line| line.contains(" --")).expect(&said);
        assert_eq!(hints(message), expected, "{message}");
        for (number, hint) in expected.iter().enumerate() {
            let mut typed = plmkit(
                folder,
                &format!("{name}.fasta --out {name}-{number} --quiet"),
            );
            typed.args(shlex::split(hint).expect("words"));
            // Of three records one is more than the default share of rejects.
            let typed = typed.arg("--max-rejected=60%").output();
            let typed = typed.expect("run");
            assert!(
                typed.status.success(),
                "{hint}: {}",
                String::from_utf8_lossy(&typed.stderr)
            );
        }
    }
    rejected_records(folder);
}

fn rejected_records(folder: &Path) {
    let line = "letter.fasta --out rejected --invalid=reject";
    let failed = plmkit(folder, line).output().expect("run");
    let hint = "or --max-rejected SHARE";
    assert!(said(&failed).contains(hint), "{}", said(&failed));
    let page = fs::read_to_string(folder.join("rejected/index.html"));
    let hint = "accept more with --max-rejected.";
    assert!(page.expect("a page").contains(hint));
    let typed = plmkit(folder, line).args(["--max-rejected=50%"]).status();
    assert!(typed.expect("run").success());
}
