//! What a run refuses before it computes, and what it does not do again.

use std::fs;
use std::path::Path;

use crate::common::{assert_fails, command, run, tree};
use crate::{data, plmkit, proteins};

#[test]
fn places_that_a_report_or_checkpoints_cannot_have_are_refused_before_the_start() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    proteins(folder, "b.fasta", 3);
    for (options, code, what) in [
        (
            "--report nowhere/v.json",
            73,
            "nowhere/v.json: cannot create",
        ),
        ("--html nowhere/v.html", 73, "nowhere/v.html: cannot create"),
        (
            "--report v --html ./v",
            2,
            "--html and --report are the same file",
        ),
        ("--report .", 73, ".: cannot create: is a directory"),
        (
            "--checkpoint-dir a.fasta",
            2,
            "expected a folder for --checkpoint-dir",
        ),
        (
            "b.fasta --reference a.fasta",
            2,
            "--reference: expected one sample",
        ),
        ("b.fasta --report v", 2, "--report: expected one sample"),
        (
            "--model-name a\tb",
            2,
            "expected a name of the model without control characters",
        ),
    ] {
        let mut refused = plmkit(folder, "a.fasta --out results");
        refused.args(options.split(' '));
        assert_fails(&mut refused, code, what);
        assert!(!folder.join("results").exists(), "{options}");
    }
    run(&mut plmkit(folder, "a.fasta --out results --quiet"));
    for place in [
        "results/index.html",
        "results/a/reports/run.json",
        "results/pipeline_info/params.json",
    ] {
        let before = data(folder);
        let line = format!("a.fasta --out results --report {place}");
        assert_fails(&mut plmkit(folder, &line), 2, "among the results");
        assert!(data(folder) == before);
    }
    let line = "a.fasta --out results --checkpoint-dir results/a/embeddings/x";
    assert_fails(
        &mut plmkit(folder, line),
        2,
        "among the results of a sample",
    );
    let line = "b.fasta --out other --known results";
    assert_fails(
        &mut plmkit(folder, line),
        66,
        "expected that of a sample in it",
    );
}

/// When the verdict on the sample was written.
fn judged(folder: &Path) -> std::time::SystemTime {
    let found = folder.join("results/a/dataset.json").metadata();
    found.and_then(|found| found.modified()).expect("a verdict")
}

#[test]
fn a_finished_sample_is_not_judged_again_for_what_changes_no_value() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let line = "a.fasta --out results --quiet --report v.json";
    run(&mut plmkit(folder, line));
    let before = judged(folder);
    for options in [
        "",
        " --threads 1 --progress none --prefetch 2",
        " --pool mean --layers last --spot-check-seed 0",
        " --model-name X --max-batch-tokens 900",
    ] {
        run(&mut plmkit(folder, &format!("{line}{options}")));
        assert!(judged(folder) == before, "{options}");
    }
    fs::remove_file(folder.join("v.json")).expect("remove");
    run(&mut plmkit(folder, line));
    assert!(judged(folder) > before && folder.join("v.json").exists());
}

#[test]
fn a_sample_that_is_cut_otherwise_needs_another_folder() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    proteins(folder, "b.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = tree(&folder.join("results"));
    for (options, what) in [
        (
            "--max-residues 100",
            "a: --max-residues was 1022 and is now 100: expected the same for all samples of a folder",
        ),
        (
            "--long-policy window",
            "a: --long-policy was truncate and is now window",
        ),
    ] {
        for stage in ["", " --stage prepare", " --stage check"] {
            let line = format!("b.fasta --out results {options}{stage}");
            assert_fails(&mut plmkit(folder, &line), 73, what);
        }
    }
    assert!(tree(&folder.join("results")) == before);
    run(&mut plmkit(folder, "b.fasta --out results --dedup"));
}

#[test]
fn a_later_stage_takes_the_shards_of_the_first_even_by_force() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results --stage prepare"));
    for stage in ["embed --task 1/1", "finish"] {
        for options in ["--max-residues 100", "--dedup"] {
            let line = format!("a.fasta --out results --stage {stage} --force {options}");
            let what = "; --stage prepare --force replaces it";
            assert_fails(&mut plmkit(folder, &line), 73, what);
        }
        let line = format!("a.fasta --out results --stage {stage} --force");
        run(&mut plmkit(folder, &line));
    }
}

#[test]
fn a_spot_check_needs_no_position_of_its_rows() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    let text = fs::read_to_string(folder.join("a.fasta")).expect("read");
    let id = text[1..].split([' ', '\n']).next().expect("an id");
    fs::write(folder.join("p.csv"), format!("id,position\n{id},2\n")).expect("write");
    let options = "--scores masked --scores-positions p.csv --spot-check 1 --quiet";
    for seed in 0..4 {
        let line = format!("a.fasta --out results {options} --spot-check-seed {seed}");
        run(&mut plmkit(folder, &line));
    }
}

#[test]
fn queries_in_another_policy_take_no_overlap_of_the_results() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let windows = "--long-policy window --max-residues 100 --overlap 20";
    let line = format!("a.fasta --out results {windows} --quiet");
    run(&mut plmkit(folder, &line));
    for options in ["--long-policy truncate", "--max-residues 400"] {
        let line = format!("plmkit search a.fasta results --device cpu --quiet {options}");
        run(&mut command(folder, &line));
    }
    let line = "plmkit variants a.fasta --scan --overlap 9 --model m";
    assert_fails(
        &mut command(folder, line),
        2,
        "unexpected argument '--overlap'",
    );
}
