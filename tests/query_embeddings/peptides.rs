//! Peptides of contigs in the formats of genome browsers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plmkit_contract::{Kind, alias_rows};
use plmkit_store::{RecordListReader, read_shard};

use crate::common::{assert_failed, bin, command, run, test_data};

/// Translates codons by the standard code, from the first base on.
fn translate(bases: &str) -> String {
    const ORDER: &str = "TCAG";
    const RESIDUES: &[u8] = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG";
    let places = bases.chars().map(|base| ORDER.find(base).expect("a base"));
    let places: Vec<usize> = places.collect();
    let codons = places.chunks_exact(3);
    codons
        .map(|codon| char::from(RESIDUES[16 * codon[0] + 4 * codon[1] + codon[2]]))
        .collect()
}

fn reverse_complement(bases: &str) -> String {
    let complement = |base| match base {
        'A' => 'T',
        'C' => 'G',
        'G' => 'C',
        _ => 'A',
    };
    bases.chars().rev().map(complement).collect()
}

/// Random bases, the same in every run.
fn contigs() -> Vec<(&'static str, String)> {
    let mut state = 7_u64;
    let mut bases = |count| {
        let base = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ['A', 'C', 'G', 'T'][(state >> 62) as usize]
        };
        (0..count).map(base).collect::<String>()
    };
    let first = bases(1000);
    let second = format!("{}{}", bases(300), &first[..700]);
    vec![("k141_7;x", first), ("NODE=2", second)]
}

/// The results of contigs, of which some peptides share residues and some are rejected.
fn results(folder: &Path) {
    let fasta = contigs().into_iter();
    let fasta = fasta.map(|(id, bases)| format!(">{id} a contig\n{bases}\n"));
    fs::write(folder.join("contigs.fna"), fasta.collect::<String>()).expect("write");
    let options = "--translate orf --min-residues 6 --dedup --max-residues 30 --long-policy reject";
    let mut plmkit = bin("plmkit");
    plmkit.args(["contigs.fna", "--out", "results"]);
    plmkit.args(options.split(' '));
    plmkit.args(["--max-rejected=0.5"]);
    plmkit.arg("--model").arg(test_data("model-tiny"));
    run(plmkit.current_dir(folder));
}

/// The residues of each peptide that has vectors, by its id.
fn residues(shards: &Path) -> BTreeMap<String, String> {
    let shard = read_shard(&shards.join("shard-00000.parquet")).expect("a shard");
    let mut rows = BTreeMap::new();
    let mut residues = BTreeMap::new();
    for row in shard.rows().iter() {
        rows.insert(row.key.ordinal, row.sequence.to_owned());
        residues.insert(row.key.id.to_owned(), row.sequence.to_owned());
    }
    let own = residues.len();
    let list = shards.join("aliases.parquet");
    let mut list = RecordListReader::open(&list, Kind::Aliases).expect("aliases");
    while let Some(batch) = list.next_batch().expect("sound") {
        for alias in alias_rows(&batch) {
            residues.insert(alias.key.id.to_owned(), rows[&alias.representative].clone());
        }
    }
    assert!(own > 20 && residues.len() > own, "{own}");
    residues
}

#[test]
fn peptides_lie_where_their_codons_are() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder);
    let contigs: BTreeMap<_, _> = contigs().into_iter().collect();
    let mut expected = residues(&folder.join("results/contigs/shards"));
    run(&mut command(
        folder,
        "query-embeddings peptides results/contigs --out p.gff3",
    ));
    run(&mut command(
        folder,
        "query-embeddings peptides results/contigs --format bed --out p.bed",
    ));
    for again in ["", "", " --force"] {
        let line = format!("query-embeddings peptides results --out p.faa{again}");
        run(&mut command(folder, &line));
    }
    let fasta = fs::read_to_string(folder.join("p.faa")).expect("FASTA");
    let records = fasta.split_terminator('>').skip(1).map(|record| {
        let (header, residues) = record.split_once('\n').expect("lines");
        let (id, place) = header.split_once(' ').expect("a place");
        let end = id.rsplit('_').next().expect("an end");
        assert!(place.contains(&format!("-{end}(")), "{header}");
        (id.to_owned(), residues.trim_end().to_owned())
    });
    assert_eq!(records.collect::<BTreeMap<_, _>>(), expected);
    let gff = fs::read_to_string(folder.join("p.gff3")).expect("GFF");
    let bed = fs::read_to_string(folder.join("p.bed")).expect("BED");
    let (version, features) = gff.split_once('\n').expect("lines");
    assert_eq!(version, "##gff-version 3");
    assert_eq!(features.lines().count(), bed.lines().count());
    let mut strands = String::new();
    for (feature, line) in features.lines().zip(bed.lines()) {
        let feature: Vec<_> = feature.split('\t').collect();
        let line: Vec<_> = line.split('\t').collect();
        let plain = |text: &str| text.replace("%3B", ";").replace("%3D", "=");
        let [
            contig,
            source,
            kind,
            start,
            end,
            score,
            strand,
            phase,
            attributes,
        ] = feature[..]
        else {
            panic!("nine columns: {feature:?}")
        };
        assert_eq!([source, kind, score, phase], ["plmkit", "ORF", ".", "."]);
        let (id, frame) = attributes.split_once(";frame=").expect("two attributes");
        let id = plain(id.strip_prefix("ID=").expect("an id"));
        let first: usize = start.parse().expect("a number");
        assert_eq!(
            line,
            [
                &*plain(contig),
                &(first - 1).to_string(),
                end,
                &id,
                "0",
                strand
            ]
        );
        assert_eq!(frame.starts_with('-'), strand == "-");
        strands.push_str(strand);
        let last: usize = end.parse().expect("a number");
        let bases = &contigs[&*plain(contig)][first - 1..last];
        let found = match strand {
            "+" => translate(bases),
            _ => translate(&reverse_complement(bases)),
        };
        assert_eq!(expected.remove(&id).as_ref(), Some(&found), "{id}");
    }
    assert_eq!(expected, BTreeMap::new());
    assert!(strands.contains('+') && strands.contains('-'));
}

#[test]
fn ids_choose_and_what_is_no_list_of_peptides_is_refused() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    results(folder);
    let ids = residues(&folder.join("results/contigs/shards"));
    let ids: Vec<_> = ids.into_keys().take(3).collect();
    fs::write(folder.join("ids"), ids[..2].join("\n")).expect("write");
    let peptides = |options: &str| {
        let line = format!("query-embeddings peptides results/contigs {options}");
        command(folder, &line).output().expect("the program starts")
    };
    let written = peptides("--ids ids --format bed --out few.bed");
    assert!(written.status.success(), "{written:?}");
    let bed = fs::read_to_string(folder.join("few.bed")).expect("BED");
    assert_eq!(bed.lines().count(), 2);
    assert!(ids[..2].iter().all(|id| bed.contains(&**id)));
    let missing = peptides("--ids ids --id nobody --format bed --out few.bed");
    assert_failed(&missing, 1, "1 of 3 ids are not in the dataset: 'nobody'");
    let others = peptides("--format bed --out few.bed");
    assert_failed(&others, 73, "few.bed: exists and holds other work");
    assert_eq!(
        fs::read_to_string(folder.join("few.bed")).expect("BED"),
        bed
    );
    let unknown = peptides("--out few.tsv");
    assert_failed(&unknown, 2, "its name ends with no known format");
    let few = peptides("--ids ids --out few.fa");
    assert!(few.status.success(), "{few:?}");
    let few = fs::read_to_string(folder.join("few.fa")).expect("FASTA");
    assert_eq!(few.matches('>').count(), 2);
    assert!(peptides("--out own.gff3").status.success());
    for (own, others) in [
        (
            "few.fa",
            &[
                "some notes\n",
                ">mine my protein\nMKV\n",
                ">chr1:1-9(+)\nMKV\n",
            ][..],
        ),
        ("few.bed", &["chr1\t1\t9\tpeak\t960\t+\n", "some notes\n"]),
        (
            "own.gff3",
            &["##gff-version 3\nc\thavana\tgene\t1\t9\t.\t+\t.\tID=g\n"],
        ),
    ] {
        let again = peptides(&format!("--ids ids --force --out {own}"));
        assert!(again.status.success(), "{again:?}");
        for text in others {
            fs::write(folder.join(own), text).expect("write");
            let refused = peptides(&format!("--force --out {own}"));
            assert_failed(&refused, 73, "which nothing replaces");
        }
    }
    let inside = peptides("--out results/contigs/shards/p.gff");
    assert_failed(&inside, 2, "expected a place outside");
    fs::copy(test_data("proteins.fasta"), folder.join("p.fasta")).expect("copy");
    let mut plmkit = command(folder, "plmkit p.fasta --out proteins");
    run(plmkit.arg("--model").arg(test_data("model-tiny")));
    let line = "query-embeddings peptides proteins/p --out p.gff";
    let proteins = command(folder, line).output().expect("the program starts");
    assert_failed(&proteins, 66, "the shards were cut without --translate");
}

#[test]
fn what_readers_of_bed_take_for_a_comment_is_no_contig() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    let [(_, bases), _] = &contigs()[..] else {
        panic!("two contigs")
    };
    let fasta = ["ok", "#NODE_1", "track", "browser"].map(|id| format!(">{id}\n{bases}\n"));
    fs::write(folder.join("c.fna"), fasta.concat()).expect("write");
    let mut plmkit = command(folder, "plmkit c.fna --out results --quiet");
    plmkit.args(["--translate=orf", "--min-residues=6"]);
    run(plmkit.arg("--model").arg(test_data("model-tiny")));
    let shards = folder.join("results/c/shards");
    let peptides = |options: &str| {
        let line = format!("query-embeddings peptides results/c {options}");
        command(folder, &line).output().expect("the program starts")
    };
    let what = "peptides.parquet: ordinal ";
    let refused = peptides("--out p.bed");
    assert_failed(&refused, 65, what);
    let what = "begins with the contig '#NODE_1': expected --format gff";
    assert_failed(&refused, 65, what);
    assert!(!folder.join("p.bed").exists());
    assert!(peptides("--out p.gff").status.success());
    let gff = fs::read_to_string(folder.join("p.gff")).expect("GFF");
    assert_eq!(gff.matches("\n#").count(), 0);
    assert!(gff.contains("\n%23NODE_1\t") && gff.contains("\ntrack\t"));
    // Of the contigs that are asked for.
    let ok = gff
        .split(['=', ';'])
        .find(|id| id.starts_with("ok"))
        .expect("an id");
    assert!(peptides(&format!("--id {ok} --out p.bed")).status.success());

    // Any file of the set may be lost, before and after the validation.
    fs::remove_file(folder.join("results/c/dataset.json")).expect("remove");
    for name in ["rejects.csv", "shard-00000.parquet", "peptides.parquet"] {
        let bytes = fs::read(shards.join(name)).expect("a file");
        fs::remove_file(shards.join(name)).expect("remove");
        let what = format!("results/c/shards/{name}: cannot open: no such file");
        assert_failed(&peptides("--out q.gff"), 66, &what);
        fs::write(shards.join(name), bytes).expect("write");
    }
    assert!(peptides("--out q.gff").status.success());
}
