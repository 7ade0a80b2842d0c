//! Options that change no value, on a folder that is finished. The options and their defaults are those of each program's help.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};

use crate::common::{Tree, assert_fails, command, run, test_data, tree};
use crate::{copy_as_f16, proteins};

/// Options of the programs that plmkit gives them, that change the results, or that are no options of a run.
const OTHERS: [(&str, &[&str]); 4] = [
    (
        "fasta-shard",
        &[
            "--out",
            "--sample",
            "--shards",
            "--max-shard-tokens",
            "--translate",
            "--drop-blanks",
            "--pir",
            "--dedup",
            "--known",
            // These need an option that changes the results.
            "--genetic-code",
            "--stops",
            "--orf-between",
            "--overlap",
        ],
    ),
    ("pack-batches", &["--out", "--batch-size", "--description"]),
    (
        "gpu-embed",
        &[
            "--model",
            "--out",
            "--rejects",
            "--events",
            "--probe",
            "--residues",
            "--logits",
            "--contacts",
            "--scores",
            "--scores-positions",
            // It computes again, as it says.
            "--force",
        ],
    ),
    (
        "validate-embeddings",
        &[
            "--dataset",
            "--shards",
            "--rejects",
            "--manifest",
            "--model",
            "--recomputed",
            "--mqc",
            "--reference",
            "--min-cosine",
        ],
    ),
];

/// Values of options without a default that change no result.
const NEUTRAL: [(&str, &str); 16] = [
    ("--allow-empty", ""),
    ("--checkpoint-dir", " saved"),
    ("--download", ""),
    ("--force", ""),
    ("--html", " v.html"),
    ("--log-format", " json"),
    ("--max-rejected", " 50%"),
    ("--min-residues", " 1"),
    ("--model-name", " X"),
    ("--quiet", ""),
    ("--report", " r.json"),
    ("--sample", " 1"),
    ("--skip", " pooling"),
    ("--threads", " 1"),
    ("--verbose", ""),
    ("--wait-for-lock", ""),
];

/// The options of a program, with their defaults.
fn listed(program: &str) -> Vec<(String, Option<String>)> {
    let command = match program {
        "fasta-shard" => fasta_shard::Args::command(),
        "pack-batches" => pack_batches::Args::command(),
        "gpu-embed" => gpu_embed::Args::command(),
        _ => validate_embeddings::Args::command(),
    };
    let options = command.get_arguments().filter(|own| !own.is_hide_set());
    let options = options.filter_map(|own| {
        let values = own.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        // A switch is off by default.
        let takes_value = own.get_action().takes_values();
        let default = (takes_value && !values.is_empty()).then(|| format!(" {}", values.join(",")));
        Some((format!("--{}", own.get_long()?), default))
    });
    options.collect()
}

/// What a run that computes nothing leaves as it is.
fn computed(folder: &Path) -> Tree {
    let mut found = tree(folder);
    found.retain(|path, _| {
        let is_in = |name: &str| path.iter().any(|part| part == name);
        is_in("embeddings") || is_in("logs") || is_in("shards")
    });
    found
}

fn plmkit(folder: &Path, options: &str) -> Command {
    let mut command = command(
        folder,
        &format!("plmkit a.fasta --out results --quiet{options}"),
    );
    command.arg("--model").arg(test_data("model-tiny"));
    command
}

#[test]
fn an_option_that_changes_no_value_computes_nothing_again() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, " --device cpu"));
    let before = computed(folder);
    for (program, others) in OTHERS {
        let options = listed(program);
        assert!(options.len() > 5, "{options:?}");
        let (mut defaults, mut neutral) = (String::new(), String::new());
        for (name, default) in &options {
            if others.contains(&&**name) || name == "--generate" {
                continue;
            }
            let value = NEUTRAL.iter().find(|(known, _)| known == name);
            assert!(
                default.is_some() || value.is_some(),
                "{program} {name}: changes it a value?"
            );
            if let Some(default) = default.as_ref().filter(|_| name != "--device") {
                defaults.extend([" ", &**name, &**default]);
            }
            if let Some((_, value)) = value {
                neutral.extend([" ", &**name, *value]);
            }
        }
        for words in [defaults, neutral] {
            let mut again = plmkit(folder, " --device cpu");
            run(again.arg(format!("--{program}={words}")));
            assert!(computed(folder) == before, "{program} {words}");
        }
    }
}

#[test]
fn a_device_and_a_type_are_those_that_the_machine_has() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("SKIPPED: on a GPU, the default is another device");
        return;
    }
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, ""));
    let before = computed(folder);
    for same in [
        " --device cpu",
        "",
        " --dtype f32",
        " --device cpu --dtype auto",
        " --device auto",
    ] {
        run(&mut plmkit(folder, same));
        assert!(computed(folder) == before, "{same}");
    }
    for other in [
        " --device cuda",
        " --dtype bf16",
        " --device cuda --dtype f32",
    ] {
        assert_fails(
            plmkit(folder, other),
            73,
            "results: has embeddings of other settings (",
        );
        assert!(computed(folder) == before, "{other}");
    }
    // What another machine made is not what this one would make.
    let params = folder.join("results/pipeline_info/params.json");
    let text = fs::read_to_string(&params).expect("read");
    fs::write(
        &params,
        text.replace("\"gpu_embed\": \"", "\"gpu_embed\": \"--dtype bf16 "),
    )
    .expect("write");
    run(&mut plmkit(folder, " --device cpu"));
    // What a GPU made in a type of its own is complete anywhere.
    let path = folder.join("results/a/embeddings/shard-00000.parquet");
    let halves = folder.join("halves");
    copy_as_f16(&path, &halves);
    fs::rename(halves, &path).expect("rename");
    for option in ["", " --dtype f16"] {
        run(&mut plmkit(folder, option));
    }
    let before = computed(folder);
    let what = "--dtype f16: not computed on this CPU";
    for again in [" --dtype f16 --force", " --dtype f16 --device cpu"] {
        assert_fails(plmkit(folder, again), 2, what);
        assert!(computed(folder) == before, "{again}");
    }
    fs::remove_file(path).expect("remove");
    assert_fails(plmkit(folder, " --dtype f16"), 2, what);
}
