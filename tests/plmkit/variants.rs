//! `plmkit variants`: every line of a table stays, with the score of a plain loop or a reason.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use plmkit_contract::{AMINO_ACIDS, Column, MASK, tokenize};
use plmkit_esm2::{ComputeOptions, Device, Dtype, Esm2, Varlen};
use plmkit_kit::Stop;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{self, assert_fails, run, test_data};
use crate::plmkit;

const ONE: &str = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSG";
const FASTA: &str =
    ">sp|P1|ONE_HUMAN first\nMKTAYIAKQRQISFVKSHFSRQLEERL\nGLIEVQAPILSRVGDGTQDNLSG\n>odd\nMKXUVLA\n";

fn variants(folder: &Path, arguments: &str) -> Command {
    let mut variants = plmkit(folder, &format!("variants {arguments}"));
    variants.env("TMPDIR", folder.join("tmp"));
    variants
}

/// A folder with a FASTA of this text, and one for temporary files.
fn folder_with(fasta: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("temp folder");
    fs::create_dir(folder.path().join("tmp")).expect("folder");
    fs::write(folder.path().join("p.fasta"), fasta).expect("write");
    folder
}

/// What a program prints that ends with this code, and leaves nothing.
fn printed(folder: &Path, arguments: &str, code: i32) -> String {
    let output = variants(folder, arguments).output().expect("plmkit");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(common::all(&folder.join("tmp")).is_empty(), "{arguments}");
    String::from_utf8(output.stdout).expect("text")
}

/// The log-ratios of all amino acids and the wild type at a residue, by one pass of a loop over the model.
fn ratios(model: &Esm2, residue: usize, is_masked: bool) -> [f64; AMINO_ACIDS.len()] {
    let token = |letter: u8| {
        let mut token = Vec::new();
        tokenize(&[letter], &mut token).expect("a residue");
        token[1]
    };
    let mut tokens = Vec::new();
    tokenize(ONE.as_bytes(), &mut tokens).expect("residues");
    if is_masked {
        tokens[residue + 1] = MASK;
    }
    let offsets = [0, (tokens.len() as u32).cast_signed()];
    let alone = Varlen::new(&tokens, &offsets).expect("a sequence");
    let logits = model.embed(alone, &[Column::Logits], Dtype::F32, &Stop::default());
    let logits = &logits.expect("computed")[0][residue * 33..][..33];
    let logit = |letter| f64::from(logits[usize::from(token(letter))]);
    AMINO_ACIDS.map(|letter| logit(letter) - logit(ONE.as_bytes()[residue]))
}

#[test]
fn each_substitution_has_the_score_of_a_loop() {
    let folder = folder_with(&format!(">one\n{ONE}\n"));
    let folder = folder.path();
    let options = ComputeOptions {
        device: Device::Cpu,
        ..ComputeOptions::default()
    };
    let model = Esm2::load(&test_data("model-tiny"), options, &Stop::default()).expect("a model");
    let mut table = "mutant,mutated_sequence,DMS_score,DMS_score_bin\n".to_owned();
    let some = (1..).zip(ONE.chars()).step_by(6);
    table.extend(some.map(|(at, own)| format!("{own}{at}W:G50C,MK,0.25,1\n")));
    fs::write(folder.join("v.csv"), &table).expect("write");
    for (option, is_masked) in [("", false), (" --masked", true)] {
        let ratios: Vec<_> = (0..ONE.len())
            .map(|residue| ratios(&model, residue, is_masked))
            .collect();
        let check = |found: &str, variant: &str| {
            let mut sum = 0.0;
            for part in variant.split(':') {
                let (mutant, position) =
                    (part.as_bytes()[part.len() - 1], &part[1..part.len() - 1]);
                let place = AMINO_ACIDS.iter().position(|&other| other == mutant);
                let position: usize = position.parse().expect("a position");
                sum += ratios[position - 1][place.expect("one of the twenty")];
            }
            let distance = (found.parse::<f64>().expect("a score") - sum).abs();
            assert!(
                distance < 1e-5 * sum.abs().max(1.0),
                "{variant}: {found} {sum}"
            );
        };
        let scan = printed(folder, &format!("p.fasta --scan{option}"), 0);
        let lines: Vec<Vec<&str>> = scan
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(lines[0], ["id", "mutant", "score", "reason"]);
        assert_eq!(lines.len() - 1, 19 * ONE.len());
        for line in &lines[1..] {
            assert_eq!([line[0], line[3]], ["one", ""]);
            check(line[2], line[1]);
        }
        // In a child as in this process.
        for children in ["", " --children 1"] {
            let found = printed(folder, &format!("p.fasta v.csv{option}{children}"), 0);
            for (found, own) in found.lines().zip(table.lines()).skip(1) {
                let added = found.strip_prefix(own).expect("own columns");
                let score = added
                    .strip_prefix(',')
                    .and_then(|added| added.strip_suffix(','));
                check(
                    score.expect("a score without a reason"),
                    own.split(',').next().expect("a variant"),
                );
            }
        }
    }
}

#[test]
fn a_line_has_a_score_or_a_reason() {
    let folder = folder_with(FASTA);
    let folder = folder.path();
    let reasons = [
        ("P1,p.Lys2Ala", ""),
        ("ONE_HUMAN,NP_1.2:p.(Lys2Ala)", ""),
        ("sp|P1|ONE_HUMAN,K2A;T3V", ""),
        (
            "odd,ONE_HUMAN:p.Lys2Ala",
            "expected a variant of this protein, found one of 'sp|P1|ONE_HUMAN'",
        ),
        ("odd,X3A", "a residue is none of the twenty amino acids"),
        ("odd,K2*", "stop"),
        ("odd,L3fs", "expected L at position 3, found X"),
        (
            "odd,p.Lys9del",
            "expected K at position 9, found a protein of 7 residues",
        ),
        ("odd,p.Lys2_Ala7del", "deletion"),
        ("odd,", "no variant"),
        ("odd,WT", ""),
        ("odd,U4=", ""),
        ("none,K2A", "no protein 'none'"),
        ("odd,A2K", "expected A at position 2, found K"),
        (
            "odd,A8K",
            "expected A at position 8, found a protein of 7 residues",
        ),
        (
            "odd,what",
            "expected a residue, its position from 1 and a residue, such as A123V, p.Ala123Val or A123V:K5R",
        ),
    ];
    let lines: Vec<String> = reasons
        .iter()
        .map(|(line, _)| format!("{line},\"a \"\"note\"\", x\"\n"))
        .collect();
    fs::write(
        folder.join("v.csv"),
        "protein,Variant,note\n".to_owned() + &lines.concat(),
    )
    .expect("write");
    for options in [
        "v.csv",
        "v.csv --masked",
        "v.csv --out new.csv",
        "v.csv --out new.csv --force",
    ] {
        let mut text = printed(folder, &format!("p.fasta {options}"), 1);
        if options.contains("--out") {
            text = fs::read_to_string(folder.join("new.csv")).expect("a table");
        }
        assert_eq!(
            text.lines().next(),
            Some("protein,Variant,note,score,reason")
        );
        assert_eq!(text.lines().count(), 1 + reasons.len());
        for ((found, own), (_, reason)) in text.lines().skip(1).zip(&lines).zip(reasons) {
            let added = found.strip_prefix(own.trim_end()).expect("own columns");
            let (score, found) = added[1..].split_once(',').expect("two columns");
            assert_eq!(
                (score.is_empty(), found.trim_matches('"')),
                (!reason.is_empty(), reason),
                "{own}"
            );
        }
    }
    let said = variants(folder, "p.fasta v.csv")
        .output()
        .expect("plmkit")
        .stderr;
    let said = String::from_utf8_lossy(&said);
    for what in [
        "v.csv: 16 lines, 5 with a score",
        "v.csv: line 5 'odd' 'ONE_HUMAN:p.Lys2Ala': expected a variant of this protein",
        "; the first of 7 that are wrong",
    ] {
        assert!(said.contains(what), "{said}");
    }
    // Scored again, a table has numbered columns.
    let again = printed(folder, "p.fasta new.csv --out again.tsv", 1);
    assert!(again.is_empty());
    let again = fs::read_to_string(folder.join("again.tsv")).expect("a table");
    assert!(
        again.starts_with("protein\tVariant\tnote\tscore\treason\tscore_2\treason_2\n"),
        "{again}"
    );
}

#[test]
fn what_is_refused_leaves_nothing() {
    let folder = folder_with(FASTA);
    let folder = folder.path();
    fs::write(folder.join("v.csv"), "id,mutant\nodd,K2A\nodd,K3A\n").expect("write");
    fs::write(folder.join("n.csv"), "n,mutant\n1,K2A\n").expect("write");
    fs::write(folder.join("there.csv"), "a,b\n").expect("write");
    let before = common::all(folder);
    for (arguments, code, what) in [
        (
            "p.fasta v.csv --strict --out x.csv",
            65,
            "v.csv: line 3 'odd' 'K3A': expected K at position 3, found X",
        ),
        (
            "p.fasta n.csv",
            65,
            "n.csv: line 1: expected a column protein_id or",
        ),
        (
            "p.fasta v.csv --column x",
            65,
            "expected a column x, found 'id,mutant'",
        ),
        ("p.fasta none.csv", 66, "none.csv: cannot open"),
        ("p.fasta v.csv --out there.csv", 73, "there.csv: exists"),
        (
            "p.fasta v.csv --out there.csv --force",
            73,
            "there.csv: exists, and is not this table with scores, which nothing replaces",
        ),
        (
            "p.fasta v.csv --out x.parquet",
            2,
            "--out x.parquet: expected a name that ends with .csv or .tsv",
        ),
        (
            "p.fasta v.csv --out v.csv --force",
            2,
            "--out and the table are the same file",
        ),
        ("p.fasta v.csv --scan", 2, "cannot be used with"),
        ("p.fasta", 2, "<TABLE>"),
    ] {
        assert_fails(variants(folder, arguments).arg("--quiet"), code, what);
        assert_eq!(common::all(folder), before, "{arguments}");
        assert!(common::all(&folder.join("tmp")).is_empty(), "{arguments}");
    }
    let model = common::poisoned_model(folder, "poisoned");
    fs::write(folder.join("p.fasta"), ">a\nMKV\n>b\nMOV\n").expect("write");
    fs::write(folder.join("v.csv"), "id,mutant\na,K2A\nb,M1A\n").expect("write");
    let all = common::command(
        folder,
        "plmkit variants p.fasta v.csv --device all --model x --quiet",
    );
    let what = "--device all: expected one device; a run computes on all";
    assert_fails(all, 2, what);
    let mut poisoned =
        common::command(folder, "plmkit variants p.fasta v.csv --device cpu --model");
    let output = poisoned.arg(model).output().expect("plmkit");
    assert_eq!(output.status.code(), Some(1), "a protein was not computed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.ends_with("b,M1A,,not embedded: not_finite\n"),
        "{text}"
    );
    // In a child as in this process, whose folder is gone when its messages are read.
    poisoned.args(["--children", "1"]);
    for output in [output, poisoned.output().expect("plmkit")] {
        let said = String::from_utf8_lossy(&output.stderr);
        let named = "p.fasta: 2 records without scores, such as 'a' (not_finite), 'b' (not_finite)";
        assert!(said.contains(named), "{said}");
        assert!(!said.contains("could not be embedded"), "{said}");
    }
}

#[test]
fn a_long_protein_of_a_proteome_is_scored_to_its_end() {
    let long = ONE.repeat(50);
    let folder = folder_with(&format!(">long\n{long}\n"));
    let folder = folder.path();
    let proteome = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let fasta = folder.join("p.fasta");
    fs::write(&fasta, format!("{proteome}>long\n{long}\n")).expect("write");
    fs::write(
        folder.join("v.tsv"),
        "protein_id\tmutation\nlong\tG2500C\nlong\tM1401C\n",
    )
    .expect("write");
    let found = printed(folder, "p.fasta v.tsv", 0);
    run(&mut plmkit(
        folder,
        "p.fasta --out R --long-policy window --scores",
    ));
    let mut query = common::command(folder, "query-embeddings variants R/p v.tsv");
    let same = query.output().expect("it starts").stdout;
    assert_eq!(found, String::from_utf8_lossy(&same));
    assert_eq!(
        found.lines().filter(|line| line.ends_with('\t')).count(),
        2,
        "{found}"
    );
    // From standard input, without what a table names not.
    let mut piped = Command::new("sh");
    let line = format!(
        "cat p.fasta | {} variants - v.tsv --device cpu --model $0",
        common::program("plmkit")
    );
    let output = piped
        .args(["-c", &line])
        .arg(test_data("model-tiny"))
        .current_dir(folder)
        .output()
        .expect("sh");
    assert_eq!(found, String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_signal_leaves_nothing() {
    let folder = folder_with(&format!(">one\n{}\n", ONE.repeat(40)));
    let folder = folder.path();
    let mut running = variants(folder, "p.fasta --scan --masked --out x.tsv --threads 1");
    let mut running = running.spawn().expect("plmkit");
    while common::paths(&folder.join("tmp"))
        .iter()
        .all(|path| !path.ends_with("manifest.json"))
    {
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&running), Signal::TERM).expect("it runs");
    let ended = running.wait().expect("an end");
    assert!(!ended.success());
    assert!(common::all(&folder.join("tmp")).is_empty());
    assert_eq!(common::all(folder), ["p.fasta", "tmp"]);
}
