//! How runs end that something is in the way of: once, with one line, and with nothing left.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{SmallDisk, assert_fails, command, run, test_data, tree};
use crate::{copy_model, data, plmkit, proteins, with_model};

/// Runs a program that must not hang nor take memory without limit, whatever it reads.
fn limited(folder: &Path, line: &str) -> Output {
    let mut limited = Command::new("timeout");
    limited.args([
        "-k",
        "5",
        "60",
        "sh",
        "-c",
        "ulimit -v 8000000 && exec \"$@\"",
        "sh",
    ]);
    let of = command(folder, line);
    limited.arg(of.get_program()).args(of.get_args());
    limited
        .current_dir(folder)
        .output()
        .expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_step_that_fails_is_run_once() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    fs::write(folder.join("a.fasta"), ">a\nMKV\n>a\nMKV\n").expect("write");
    let output = plmkit(folder, "a.fasta --out results --quiet")
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(65));
    let text = said(&output);
    assert_eq!(text.matches("record 2 'a'").count(), 1, "{text}");
    assert!(!text.contains("cut again"), "{text}");

    // A folder is where embeddings are to be, and a second try would not change that.
    proteins(folder, "b.fasta", 2);
    run(&mut plmkit(folder, "b.fasta --out results2"));
    let embeddings = folder.join("results2/b/embeddings/shard-00000.parquet");
    fs::remove_file(&embeddings).expect("remove");
    fs::create_dir(&embeddings).expect("folder");
    for (force, what) in [("", "among the embeddings"), (" --force", "is a directory")] {
        let output = plmkit(folder, &format!("b.fasta --out results2 --quiet{force}"))
            .output()
            .expect("run");
        let text = said(&output);
        assert_eq!(text.matches(what).count(), 1, "{text}");
    }
}

#[test]
fn what_is_no_file_is_refused_wherever_it_is_read() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out whole"));
    let model = test_data("model-tiny");
    let model = model.display();
    let plmkit = &format!("plmkit a.fasta --out results --model {model} --device cpu --quiet");
    let validate = &format!("validate-embeddings --dataset results/a --model {model} --quiet");
    let query = "query-embeddings select results/a --id x --allow-missing --out s.parquet --quiet";
    let shard = "fasta-shard a.fasta --out f --shards 1 --known results/a --quiet --force";
    let report = "monitor-log report --events results/a/logs --gpu results/a/logs --out r.json";
    let estimate = &format!("monitor-log estimate results/a/shards --model {model}");
    for (file, lines) in [
        ("pipeline_info/params.json", &[(&**plmkit, 73)][..]),
        ("summary.tsv", &[(plmkit, 73)]),
        ("versions.yml", &[(plmkit, 73)]),
        ("batch-size.json", &[(plmkit, 73)]),
        (
            "a/dataset.json",
            &[(plmkit, 73), (validate, 73), (query, 66), (shard, 66)],
        ),
        (
            "a/shards/manifest.json",
            &[(plmkit, 73), (validate, 66), (estimate, 66)],
        ),
        ("a/shards/rejects.csv", &[(plmkit, 73), (validate, 66)]),
        (
            "a/shards/shard-00000.parquet",
            &[(plmkit, 73), (validate, 66), (estimate, 66)],
        ),
        (
            "a/embeddings/shard-00000.parquet",
            &[(plmkit, 65), (validate, 65), (query, 66), (shard, 66)],
        ),
        (
            "a/logs/shard-00000.events.jsonl",
            &[(plmkit, 0), (report, 66)],
        ),
        (
            "a/logs/shard-00000.samples.csv",
            &[(plmkit, 0), (report, 66)],
        ),
        ("a/reports/run.json", &[(plmkit, 0)]),
        ("index.html", &[(plmkit, 73)]),
    ] {
        for kind in ["pipe", "device"] {
            for &(line, code) in lines {
                run(Command::new("rm")
                    .args(["-rf", "results"])
                    .current_dir(folder));
                run(Command::new("cp")
                    .args(["-r", "whole", "results"])
                    .current_dir(folder));
                let path = folder.join("results").join(file);
                fs::remove_file(&path).expect("remove");
                match kind {
                    "pipe" => _ = run(Command::new("mkfifo").arg(&path)),
                    _ => symlink("/dev/zero", &path).expect("link"),
                }
                let output = limited(folder, line);
                let text = said(&output);
                assert_eq!(
                    output.status.code(),
                    Some(code),
                    "{kind} {file} {line}: {text}"
                );
                assert!(
                    code == 0 || text.contains(file.rsplit('/').next().expect("a name")),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn an_input_that_is_no_file_is_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out whole"));
    let model = test_data("model-tiny");
    let model = model.display();
    let plmkit = &format!("plmkit a.fasta --out results --model {model} --device cpu --quiet");
    let pack = "pack-batches whole/a/shards/shard-00000.parquet --out b.arrow";
    run(&mut command(folder, pack));
    run(Command::new("mkfifo").arg("pipe.csv").current_dir(folder));
    symlink("/dev/zero", folder.join("zero.csv")).expect("link");
    for input in ["pipe.csv", "zero.csv"] {
        for (line, code) in [
            (
                format!("plmkit {input} --out none --model {model} --quiet"),
                66,
            ),
            (format!("{plmkit} --reference={input}"), 66),
            (
                format!(
                    "gpu-embed b.arrow --out e --model {model} --scores masked --scores-positions {input}"
                ),
                66,
            ),
            (
                format!(
                    "pack-batches whole/a/shards/shard-00000.parquet --out b.arrow --batch-size {input}"
                ),
                66,
            ),
            (format!("validate-embeddings @{input}"), 66),
        ] {
            let output = limited(folder, &line);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{line}: {}",
                said(&output)
            );
            assert!(
                said(&output).contains(&format!("{input}: cannot open: not a regular file")),
                "{}",
                said(&output)
            );
        }
    }
}

#[test]
fn temporary_files_are_in_the_folder_of_results() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out whole"));
    let full = SmallDisk::mount(16);
    let full = full.as_ref().map(|disk| {
        let _ = fs::write(disk.path().join("filler"), vec![1; 1 << 15]);
        disk.path().to_owned()
    });
    for place in [Some("nowhere".into()), Some("a.fasta".into()), full]
        .into_iter()
        .flatten()
    {
        let _ = fs::remove_dir_all(folder.join("results"));
        run(plmkit(folder, "a.fasta --out results").env("TMPDIR", &place));
        assert!(data(&folder.join("results")) == data(&folder.join("whole")));
        assert!(!folder.join("results/a/.temporary").exists(), "{place:?}");
    }
    // What a killed run left.
    fs::create_dir(folder.join("results/a/.temporary")).expect("folder");
    run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(!folder.join("results/a/.temporary").exists());
}

#[test]
fn a_run_with_force_that_is_refused_late_leaves_what_is_there() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let results = folder.join("results");
    let (before, embedded) = (tree(&results), data(&results));
    let fasta = fs::read(folder.join("a.fasta")).expect("read");
    if !Path::new("/proc/driver/nvidia/version").exists() {
        for options in ["", " --max-batch-tokens=900"] {
            let line = format!("plmkit a.fasta --out results --device cuda --force{options}");
            let output = command(folder, &line)
                .arg("--model")
                .arg(test_data("model-tiny"))
                .output();
            assert_eq!(output.expect("run").status.code(), Some(69));
            assert!(tree(&results) == before, "{options}");
        }
    }
    fs::write(folder.join("a.fasta"), [&fasta[..], b"\n>x\nM1\n"].concat()).expect("write");
    for stage in ["", " --stage prepare"] {
        let output = plmkit(
            folder,
            &format!("a.fasta --out results --pool max --force{stage}"),
        )
        .output();
        assert_eq!(output.expect("run").status.code(), Some(65));
        assert!(data(&results) == embedded);
        assert!(
            fs::read(results.join("pipeline_info/params.json")).expect("read")
                == before[Path::new("pipeline_info/params.json")]
        );
        let mut names = crate::common::all(&results.join("a/embeddings"));
        names.retain(|name| name.ends_with(".unchecked"));
        assert_eq!(names, [""; 0]);
    }
    fs::write(folder.join("a.fasta"), fasta).expect("write");
    run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(data(&results) == embedded);
}

#[test]
fn a_parent_that_is_none_is_told() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    for (parent, code) in [
        ("4194305", Some(75)),
        ("text", Some(2)),
        ("0", Some(2)),
        ("-1", Some(2)),
        ("1", None),
        ("", None),
    ] {
        for program in [
            "plmkit",
            "fasta-shard",
            "pack-batches",
            "gpu-embed",
            "validate-embeddings",
            "query-embeddings",
            "monitor-log",
        ] {
            let line = format!(
                "{program} {}",
                match program {
                    "plmkit" => "a.fasta --out o --model m",
                    "fasta-shard" => "a.fasta --out o --shards 1",
                    "pack-batches" => "a.parquet --out o",
                    "gpu-embed" => "a.arrow --out o --model m --device cpu",
                    "validate-embeddings" => "a.parquet",
                    "query-embeddings" => "select o --id x --out s.parquet",
                    _ => "report --events o --out r",
                }
            );
            let mut command = command(folder, &line);
            command.env("PLMKIT_PARENT", parent);
            match code {
                Some(code) => {
                    let what = format!(
                        "{program}: PLMKIT_PARENT '{parent}': expected the process that started this one, found none"
                    );
                    assert_fails(command, code, &what);
                }
                None => assert_eq!(
                    command.output().expect("run").status.code(),
                    Some(66),
                    "{line}"
                ),
            }
        }
    }
    assert!(tree(folder).is_empty());
}

#[test]
fn a_path_may_begin_as_options_do() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    copy_model("model-tiny", &folder.join("-m"));
    run(&mut with_model(
        folder,
        Path::new("./-m"),
        "a.fasta --out whole",
    ));
    for (out, options) in [("-x", ""), ("-y", " --known=-x/a --allow-empty")] {
        let line = format!("plmkit a.fasta --out={out} --model=-m --device cpu --quiet{options}");
        run(&mut command(folder, &line));
        let made = folder.join(out);
        assert!(out != "-x" || data(&made) == data(&folder.join("whole")));
        assert!(made.join("a/dataset.json").exists());
    }
    let validate = "validate-embeddings --dataset=-x/a --model=-m --quiet --report=-r.json";
    run(&mut command(folder, validate));
    run(&mut command(
        folder,
        "monitor-log report --events=-x/a/logs --out=-s.json --quiet",
    ));
    assert!(
        ["-r.json", "-s.json"]
            .iter()
            .all(|name| folder.join(name).exists())
    );
}

/// The manifest lists one record more, which has no row.
#[test]
fn a_manifest_of_another_input_with_the_same_rows_fails_the_validation() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let more = fs::read_to_string(folder.join("a.fasta")).expect("read") + ">more\nMK-T\n";
    fs::create_dir(folder.join("b")).expect("folder");
    fs::write(folder.join("b/a.fasta"), more).expect("write");
    for line in ["a.fasta --out one", "b/a.fasta --out two"] {
        run(&mut plmkit(
            folder,
            &format!("{line} --invalid=reject --max-rejected=50%"),
        ));
    }
    for file in ["manifest.json", "rejects.csv"] {
        let [from, to] = ["two", "one"].map(|out| folder.join(out).join("a/shards").join(file));
        fs::copy(from, to).expect("copy");
    }
    let line = "validate-embeddings --dataset one/a --quiet --max-rejected 50%";
    let what = "embeddings/shard-00000.parquet: made of the shards of another manifest";
    assert_fails(&mut command(folder, line), 1, what);
}

/// The names of files decide the order of the rows.
#[test]
fn embeddings_with_swapped_names_are_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 8);
    run(&mut plmkit(
        folder,
        "a.fasta --out results --max-shard-tokens 2000",
    ));
    let embeddings = folder.join("results/a/embeddings");
    let [one, other] = [0, 1].map(|number| embeddings.join(format!("shard-0000{number}.parquet")));
    fs::rename(&one, folder.join("one")).expect("rename");
    fs::rename(&other, &one).expect("rename");
    fs::rename(folder.join("one"), &other).expect("rename");
    let line = "validate-embeddings --dataset results/a --quiet";
    let what = "shard-00000.parquet: not made of the shard of its name";
    assert_fails(&mut command(folder, line), 1, what);
    let again = "a.fasta --out results --max-shard-tokens 2000 --quiet";
    let what = "exists and holds other work (the input is not the same)";
    let refused = plmkit(folder, again).output().expect("the program starts");
    assert_eq!(refused.status.code(), Some(73), "{}", said(&refused));
    assert!(said(&refused).contains(what), "{}", said(&refused));
    run(&mut plmkit(folder, &format!("{again} --force")));
}

#[test]
fn what_a_link_in_the_results_leads_to_is_not_replaced() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out results"));
    fs::copy(folder.join("a.fasta"), folder.join("mine.fasta")).expect("copy");
    let mine = fs::read(folder.join("mine.fasta")).expect("read");
    for file in [
        "pipeline_info/params.json",
        "summary.tsv",
        "versions.yml",
        "batch-size.json",
        "a/dataset.json",
        "a/shards/manifest.json",
        "a/shards/rejects.csv",
        "a/embeddings/shard-00000.parquet",
        "a/reports/run.json",
        "a/logs/shard-00000.jsonl",
    ] {
        let path = folder.join("results").join(file);
        let own = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        symlink(folder.join("mine.fasta"), &path).expect("link");
        let run_again = plmkit(folder, "a.fasta --out results").output();
        let code = run_again.expect("run").status.code();
        let found = fs::read(folder.join("mine.fasta")).expect("read");
        assert!(found == mine, "{file}: {code:?}");
        fs::remove_file(&path).expect("remove");
        if let Some(own) = own {
            fs::write(&path, own).expect("write");
        }
    }
}

#[test]
fn a_link_to_nothing_is_called_so() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out results"));
    symlink("no/where", folder.join("link")).expect("link");
    symlink("no/where.csv", folder.join("link.csv")).expect("link");
    let model = test_data("model-tiny");
    let model = model.display();
    run(&mut command(
        folder,
        "pack-batches results/a/shards/shard-00000.parquet --out b.arrow",
    ));
    let before = tree(&folder.join("results"));
    for line in [
        format!("plmkit a.fasta --out link --model {model} --device cpu --quiet"),
        "fasta-shard a.fasta --out link --shards 1".to_owned(),
        "pack-batches results/a/shards/shard-00000.parquet --out link".to_owned(),
        "pack-batches results/a/shards/shard-00000.parquet --out o --report link --quiet"
            .to_owned(),
        format!("gpu-embed b.arrow --out link --model {model} --device cpu --quiet"),
        format!(
            "gpu-embed b.arrow --out e --model {model} --device cpu --quiet --checkpoint-dir link"
        ),
        format!("gpu-embed b.arrow --out e --model {model} --device cpu --quiet --events link"),
        format!("gpu-embed --probe --out link --model {model} --device cpu --quiet"),
        "validate-embeddings --dataset results/a --quiet --report link".to_owned(),
        "validate-embeddings --dataset results/a --quiet --html link".to_owned(),
        "query-embeddings select results/a --id x --allow-missing --out link".to_owned(),
        "query-embeddings combine results/a --out link".to_owned(),
        "monitor-log report --events results/a/logs --out link --quiet".to_owned(),
        "monitor-log record --quiet --out link.csv -- true".to_owned(),
    ] {
        let what = "cannot create: it is a link to a file or folder that does not exist";
        assert_fails(command(folder, &line), 73, what);
        assert!(tree(&folder.join("results")) == before, "{line}");
    }
}
