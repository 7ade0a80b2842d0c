//! Options that change no value, on a folder that is finished. The options and their defaults are those of each program's help.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Args;
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};

use crate::common::{Tree, assert_fails, command, run, test_data, tree};
use crate::{copy_as_f16, proteins};

/// Options that change the results, or need one that does.
const OTHERS: &str = "--translate --genetic-code --stops --orf-between --overlap --drop-blanks --pir --dedup --known --description \
                      --residues --logits --contacts --scores --scores-positions --reference --min-cosine";

/// Values of options without a default that change no result.
const NEUTRAL: [(&str, &str); 11] = [
    ("--checkpoint-dir", " saved"),
    ("--html", " v.html"),
    ("--max-batch-tokens", " 16384"),
    ("--max-rejected", " 50%"),
    ("--min-residues", " 1"),
    ("--model-name", " X"),
    ("--report", " r.json"),
    ("--skip", " pooling"),
    ("--spot-check", " 1"),
    ("--threads", " 1"),
    ("--wait-for-lock", ""),
];

/// Options of plmkit itself that change no result.
const OWN: &str =
    " --allow-empty --download --log-format json --verbose --max-shard-tokens 500000+25000";

/// The options of a program that plmkit takes, with their defaults.
fn listed<T: Args>() -> Vec<(String, Option<String>)> {
    let command = T::augment_args(clap::Command::new("options"));
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
    let programs = [
        listed::<fasta_shard::Options>(),
        listed::<pack_batches::Options>(),
        listed::<gpu_embed::Options>(),
        listed::<validate_embeddings::Options>(),
    ];
    let options = programs.concat();
    assert!(options.len() > 40, "{options:?}");
    let (mut defaults, mut neutral) = (String::new(), OWN.to_owned());
    for (name, default) in &options {
        if OTHERS.split(' ').any(|other| other == name) {
            continue;
        }
        let value = NEUTRAL.iter().find(|(known, _)| known == name);
        assert!(
            default.is_some() || value.is_some(),
            "{name}: changes it a value?"
        );
        if let Some(default) = default.as_ref().filter(|_| name != "--device") {
            defaults.extend([" ", &**name, &**default]);
        }
        if let Some((_, value)) = value {
            neutral.extend([" ", &**name, *value]);
        }
    }
    for words in [defaults, neutral] {
        let mut again = plmkit(folder, &format!(" --device cpu{words}"));
        run(&mut again);
        assert!(computed(folder) == before, "{words}");
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
