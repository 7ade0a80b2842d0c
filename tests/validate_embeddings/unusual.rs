//! Sound embeddings of unusual proteins, which no check may fail.

use std::fs;

use plmkit_contract::RESIDUES;
use serde_json::Value;

use crate::common::{run, visible};
use crate::set::failed;
use crate::spot_check::line;

/// A protein of pseudorandom residues.
fn protein(seed: u64, length: u64) -> String {
    let residue = |i: u64| (seed * 7919 + i * 104_729 + i * i * seed) % 20;
    (0..length)
        .map(|i| char::from(RESIDUES[residue(i) as usize]))
        .collect()
}

/// So many variants of a protein with one other residue each.
fn scan(protein: &str, variants: usize) -> Vec<String> {
    let variant = |i: usize| {
        let mut variant = protein.as_bytes().to_vec();
        let place = i % variant.len();
        let other = RESIDUES.iter().cycle().skip(i / variant.len());
        variant[place] = *other
            .into_iter()
            .find(|&&residue| residue != variant[place])
            .expect("20");
        String::from_utf8(variant).expect("letters")
    };
    (0..variants).map(variant).collect()
}

/// The report on embeddings of these proteins by a model, with these options, in shards in the order given.
fn report_on(proteins: &[String], tokens: &str, model: &str) -> (usize, Value) {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = |name: &str| folder.path().join(name);
    let command = |text: &str| line(folder.path(), text);
    let records = proteins.iter().enumerate();
    let fasta = records.map(|(i, protein)| format!(">P{i:04}\n{protein}\n"));
    let fasta = fasta.collect::<Vec<_>>().concat();
    fs::write(path("in.fasta"), fasta).expect("write");
    let shard = format!("fasta-shard in.fasta --out shards --max-shard-tokens {tokens}");
    run(&mut command(&format!("{shard} --alphabet protein")));
    fs::create_dir(path("embeddings")).expect("folder");
    let mut names = visible(&path("shards"));
    names.retain(|name| name.ends_with(".parquet"));
    for name in &names {
        let _ = fs::remove_file(path("batches.arrow"));
        let pack = format!("pack-batches shards/{name} --out batches.arrow");
        run(&mut command(&format!("{pack} --max-batch-tokens 4096")));
        let embed = format!("gpu-embed batches.arrow --out embeddings/{name} --model {model}");
        let options = "--device cpu --progress none --pool mean,bos,max,std";
        run(&mut command(&format!("{embed} {options}")));
    }
    let validate = "validate-embeddings embeddings --shards shards --quiet --report -";
    let output = command(validate).output().expect("run");
    let report = serde_json::from_slice(&output.stdout).expect("a report");
    (names.len(), report)
}

#[test]
fn families_copies_and_repeats_are_sound() {
    let natural = || (1..=120).map(|seed| protein(seed, 30 + seed % 40));
    let scans = [protein(1, 60), protein(2, 60), "MKKLLKKLLA".repeat(6)];
    let scans = scans.map(|protein| scan(&protein, 120));
    let series = protein(5, 300);
    let series = (1..=150).map(|length| series[..2 * length].to_owned());
    let peptides = (1..=200).map(|seed| protein(seed, 1 + seed % 20));
    let linkers = (1..=120).map(|units| "GGGGS".repeat(units));
    let unknown = (1..=120).map(|seed| {
        let residues = protein(seed, 40).into_bytes().into_iter().enumerate();
        let some = residues.map(|(i, residue)| if i % 10 < 3 { b'X' } else { residue });
        String::from_utf8(some.collect()).expect("letters")
    });
    let repeats = (0..100).map(|i| "LAGVSERTID"[i % 10..=i % 10].repeat(20 + i / 3));
    for (name, proteins) in [
        ("scans of three proteins", scans.concat()),
        (
            "a scan and other proteins",
            scans[0].iter().cloned().chain(natural()).collect(),
        ),
        ("truncation series of a protein", series.collect()),
        ("linkers of rising length", linkers.collect()),
        (
            "poly-A of rising length",
            (1..=150).map(|length| "A".repeat(length)).collect(),
        ),
        ("a third unknown", unknown.collect()),
        ("peptides and proteins", peptides.chain(natural()).collect()),
        (
            "repeats and other proteins",
            repeats.chain(natural()).collect(),
        ),
        ("copies", vec![protein(3, 50); 300]),
        (
            "copies and other proteins",
            std::iter::repeat_n(protein(3, 50), 120)
                .chain(natural())
                .collect(),
        ),
        (
            "copies, a variant and another",
            [
                vec![protein(3, 50); 298],
                vec![scans[0][7].clone(), protein(4, 50)],
            ]
            .concat(),
        ),
    ] {
        let (files, report) = report_on(&proteins, "3500", "model-tiny");
        assert!(files > 1, "{name}");
        assert_eq!(failed(&report), Vec::<&str>::new(), "{name}: {report:#}");
    }
}

#[test]
fn no_honest_file_of_any_model_has_outliers() {
    let series = protein(5, 300);
    let alone = RESIDUES[..20]
        .iter()
        .map(|&residue| char::from(residue).to_string());
    let many = (1..=1200).map(|seed| protein(seed, 40 + seed % 50));
    let sets: [(&str, Vec<String>); 8] = [
        (
            "linkers",
            (1..=100).map(|units| "GS".repeat(units)).collect(),
        ),
        (
            "poly-A",
            (1..=100).map(|length| "A".repeat(length)).collect(),
        ),
        (
            "truncation series of a protein",
            (1..=300)
                .map(|length| series[..length].to_owned())
                .collect(),
        ),
        (
            "peptides beside long proteins",
            (1..=30)
                .chain([900; 9])
                .map(|length| protein(length, length))
                .collect(),
        ),
        (
            "single residues among proteins",
            alone.clone().chain(many).collect(),
        ),
        ("single residues", alone.collect()),
        ("one protein", vec![protein(3, 80)]),
        (
            "a protein and a residue",
            vec![protein(3, 80), "W".to_owned()],
        ),
    ];
    for model in [
        "model-tiny --layers 1,2,3,4",
        "model-tiny --dtype bf16",
        "model-tiny --dtype int8",
        "model-tiny --store-dtype f16",
        "model-tiny-1b --layers 1,2",
        "model-tiny-1v",
        "model-tiny-esmc",
        "model-tiny-bin",
    ] {
        for (name, proteins) in &sets {
            let (_, report) = report_on(proteins, "1000000", model);
            assert_eq!(
                failed(&report),
                Vec::<&str>::new(),
                "{model}: {name}: {report:#}"
            );
        }
    }
}

#[test]
fn the_batches_of_interleaved_shards_may_follow_each_other_in_a_file() {
    let folder = tempfile::tempdir().expect("temp folder");
    let command = |text: &str| line(folder.path(), text);
    let records = (0..40).map(|i| format!(">P{i}\n{}\n", protein(i + 1, 30)));
    let fasta = records.collect::<Vec<_>>().concat();
    fs::write(folder.path().join("in.fasta"), fasta).expect("write");
    for step in [
        "fasta-shard in.fasta --out shards --shards 2",
        "pack-batches shards/shard-00000.parquet --out a.arrow --max-batch-tokens 512",
        "pack-batches shards/shard-00001.parquet --out b.arrow --max-batch-tokens 512",
        "gpu-embed b.arrow a.arrow --out e.parquet --model model-tiny --device cpu",
        "validate-embeddings e.parquet --shards shards",
    ] {
        run(&mut command(step));
    }
}
