//! Contigs that become proteins.

use std::fs;
use std::path::Path;

use plmkit_contract::{Kind, Manifest, Reason, TranslationSummary, peptide_rows};
use plmkit_store::RecordListReader;

use crate::case::Case;

/// Makes shards of `fasta` with peptides of any length, and returns the ordinal, id and sequence of each row.
fn translated(fasta: &str, options: &str) -> (Case, Vec<(u64, String, String)>) {
    let case = Case::new();
    case.write("a.fna", fasta);
    case.succeeds(&format!("a.fna --shards 2 --min-residues 1 {options}"));
    let rows = case.rows().into_iter();
    let rows = rows
        .map(|row| (row.ordinal, row.id, row.sequence))
        .collect();
    (case, rows)
}

fn expect(fasta: &str, options: &str, expected: &[(u64, &str, &str)]) -> Case {
    let (case, rows) = translated(fasta, options);
    let rows: Vec<_> = rows
        .iter()
        .map(|(ordinal, id, sequence)| (*ordinal, &**id, &**sequence))
        .collect();
    assert_eq!(rows, expected);
    case
}

const CONTIGS: &str = ">c_1 a contig\nATGTGAAA\naTAA\n>none\nAC\n>c\nGGNCAU\n";

#[test]
fn every_contig_is_accounted_for_by_its_peptides_or_as_a_reject() {
    let expected = [
        (0, "c_1_1_1_3", "M"),
        (1, "c_1_1_7_9", "K"),
        (2, "c_1_2_2_10", "CEN"),
        (3, "c_1_3_3_11", "VKI"),
        (4, "c_1_-1_1_12", "LFSH"),
        (5, "c_1_-2_2_10", "IFT"),
        (6, "c_1_-3_3_11", "YFH"),
        (8, "c_1_1_6", "GH"),
        (9, "c_2_2_4", "X"),
        (10, "c_3_3_5", "X"),
        (11, "c_-1_1_6", "MX"),
        (12, "c_-2_2_4", "X"),
        (13, "c_-3_3_5", "X"),
    ];
    for options in ["--translate six-frame", "--translate orf"] {
        let case = expect(CONTIGS, options, &expected);
        assert_eq!(
            case.rejects(),
            "ordinal,id,length,reason\n7,none,2,no_orf\n"
        );
        let manifest = case.manifest();
        assert_eq!((manifest.records, manifest.accepted), (14, 13));
        assert_eq!(manifest.rejected[&Reason::NoOrf], 1);
        assert_eq!(manifest.inputs[0].records, 3);
        let expected = TranslationSummary {
            contigs: 3,
            bases: 20,
            bases_replaced_by_n: 0,
            peptides: 13,
            peptides_too_short: 0,
        };
        assert_eq!(manifest.translation, Some(expected));
    }
    let case = Case::new();
    case.write("a.fna", CONTIGS);
    case.says("a.fna --shards 1 --translate orf --min-residues 4", "3 contigs (20 bases) translated to 1 peptide, 12 shorter left out; 3 records: 1 accepted, 2 rejected (no orf 2)");
}

/// The text of the ids that `peptides.parquet` tells, with their ordinals.
fn places(case: &Case) -> Vec<(u64, String)> {
    let path = case.out().join("peptides.parquet");
    let mut reader = RecordListReader::open(&path, Kind::Peptides).expect("peptides");
    let mut places = Vec::new();
    while let Some(batch) = reader.next_batch().expect("rows") {
        places.extend(peptide_rows(&batch).map(|row| {
            let (contig, frame, start, end) = (row.contig, row.frame, row.start, row.end);
            assert_eq!(row.strand() == "+", frame > 0);
            (row.ordinal, format!("{contig}_{frame}_{start}_{end}"))
        }));
    }
    let listed = case.manifest().peptides.expect("peptides");
    let digest = reader.digest();
    assert_eq!(
        (listed.rows, listed.digest),
        (digest.rows(), digest.to_string())
    );
    places
}

#[test]
fn the_place_of_every_peptide_is_listed() {
    for options in ["", " --max-residues 3 --long-policy reject --dedup"] {
        let case = Case::new();
        case.write("a.fna", format!("{CONTIGS}>d\nATGTGAAAATAA\n"));
        let args = format!("a.fna --shards 2 --translate orf --min-residues 1{options}");
        let manifest = case.succeeds(&args);
        let found = places(&case);
        assert_eq!(
            found.len() as u64,
            manifest.translation.expect("contigs").peptides
        );
        for row in case.rows() {
            assert!(found.contains(&(row.ordinal, row.id)));
        }
        let rejects = case.rejects();
        let rejects: Vec<_> = rejects
            .lines()
            .filter(|line| line.ends_with("too_long"))
            .collect();
        assert_eq!(rejects.is_empty(), options.is_empty());
        for line in rejects {
            let is_of =
                |(ordinal, id): &(u64, String)| line.starts_with(&format!("{ordinal},{id},"));
            assert!(found.iter().any(is_of), "{line}");
        }
        // A complete set is kept, and a damaged list is told.
        case.says(&args, "already complete");
        let path = case.out().join("peptides.parquet");
        let bytes = fs::read(&path).expect("read");
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("cut");
        case.fails(&args, 65, "peptides.parquet: not a readable Parquet file");
        fs::remove_file(&path).expect("remove");
        case.fails(
            &args,
            65,
            "peptides.parquet: missing, though manifest.json says",
        );
    }
}

#[test]
fn options_decide_what_a_peptide_is() {
    let start_stop = [(0, "c_1_1_1_3", "M"), (2, "c_-1_1_6", "MX")];
    expect(
        CONTIGS,
        "--translate orf --orf-between start-stop",
        &start_stop,
    );
    let (_, found) = translated(CONTIGS, "--translate six-frame --stops x");
    assert_eq!((&*found[0].1, &*found[0].2), ("c_1_1_1_9", "MXK"));
    let (_, found) = translated(CONTIGS, "--translate six-frame --stops drop");
    assert_eq!(&*found[0].1, "c_1_2_2_10");
    // TGA is W.
    let (_, found) = translated(CONTIGS, "--translate orf --genetic-code 4");
    assert_eq!((&*found[0].1, &*found[0].2), ("c_1_1_1_9", "MWK"));
    // Longer peptides are treated as proteins are.
    let case = Case::new();
    case.write("a.fna", format!(">c a b\n{}\n", "GCA".repeat(1100)));
    let args = "a.fna --shards 1 --translate orf --min-residues 1000 --long-policy reject";
    case.succeeds(args);
    assert!(
        case.rejects()
            .starts_with("ordinal,id,length,reason\n0,c_1_1_3300,1100,too_long\n")
    );
}

#[test]
fn ids_of_contigs_are_unique_or_renamed() {
    let fasta = ">c\nGCA\n>c\nGCAGCA\n";
    let case = Case::new();
    case.write("a.fna", fasta);
    let message = "a.fna: record 2 'c': expected a new id, found that of record 1";
    case.fails(
        "a.fna --shards 1 --translate orf --min-residues 1",
        65,
        message,
    );
    let (case, rows) = translated(fasta, "--translate six-frame --duplicate-ids suffix");
    assert_eq!((rows[2].0, &*rows[2].1), (2, "c_2_1_1_6"));
    let renamed = fs::read_to_string(case.out().join("renamed.csv")).expect("renamed.csv");
    assert_eq!(renamed, "ordinal,id,new_id\n2,c,c_2\n");
    let identical = ">c\nGCA\n>c\ngca\n>d\nGCA\n>e\nATG\n";
    let args = "--translate six-frame --duplicate-ids drop-identical --dedup";
    let (case, rows) = translated(identical, args);
    assert_eq!(
        case.rejects(),
        "ordinal,id,length,reason\n2,c,3,duplicate\n"
    );
    let ids: Vec<&str> = rows.iter().map(|(_, id, _)| &**id).collect();
    assert_eq!(ids, ["c_1_1_3", "c_-1_1_3", "e_1_1_3", "e_-1_1_3"]);
    assert_eq!(case.manifest().aliases.expect("aliases").rows, 2);
}

#[test]
fn characters_that_are_no_bases() {
    let fasta = ">ok\nACGTACGTRYSWKMBDHVNacgtu\n>bad\nGCAXGG-\n>\nGCA\n";
    let case = Case::new();
    case.write("a.fna", fasta);
    let args = "a.fna --shards 1 --min-residues 1 --translate orf --alphabet nucleotide";
    let message = "a.fna: record 2 'bad': expected bases for --translate, found 'X' at position 4; --invalid x replaces";
    case.fails(args, 65, message);
    case.succeeds(&format!("{args} --invalid reject"));
    assert!(
        case.rejects()
            .ends_with(",bad,7,invalid_residue\n7,,3,no_id\n"),
        "{}",
        case.rejects()
    );
    let case = Case::new();
    case.write("a.fna", &fasta[..fasta.len() - 6]);
    case.succeeds(&format!("{args} --invalid x"));
    let manifest: Manifest = case.manifest();
    assert_eq!(
        manifest.translation.map(|of| of.bases_replaced_by_n),
        Some(2)
    );
    assert!(
        case.rows()
            .iter()
            .any(|row| row.id == "bad_1_1_6" && row.sequence == "AX")
    );
}

#[test]
fn contigs_may_be_in_blocks_of_ten_only() {
    let contig = "atggcagcag cagcagcagc\nagcagcagca gca";
    let whole = contig.replace([' ', '\n'], "");
    let [(_, blocks), (_, whole)] =
        [contig, &whole].map(|bases| translated(&format!(">c\n{bases}\n"), "--translate orf"));
    assert!(blocks == whole && blocks[0].2 == "MAAAAAAAAAA");
    let case = Case::new();
    let args = "a.fna --shards 1 --translate orf --alphabet nucleotide --min-residues 1";
    for text in ["atg gca gca", "TATA BOX", "ATGGCA\0"] {
        case.write("a.fna", format!(">c\nATG\n{text}\n"));
        for policy in ["error", "x", "reject"] {
            let args = format!("{args} --invalid {policy}");
            case.fails(&args, 65, "a.fna: record 1 'c': found '");
            case.fails(&args, 65, "(line 3)");
        }
    }
}

#[test]
fn proteins_are_refused() {
    let protein = ">p\nMKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ\n";
    let case = Case::new();
    // All its letters are codes of nucleotides.
    case.write(
        "letters.fasta",
        ">p\nMKTAYVAKRRGDSHVKSHSRNA\n>q\nMKTAYVAKRRGDSHVKSHSRNA\n",
    );
    case.write(
        "proteins.fasta",
        protein.repeat(1500).replace(">p", ">p\nM\n>p"),
    );
    case.write("short.fasta", protein);
    for (file, options) in [
        ("short", ""),
        ("short", " --invalid x"),
        ("letters", ""),
        ("proteins", " --duplicate-ids keep"),
    ] {
        let args = format!("{file}.fasta --shards 1 --translate orf{options}");
        let message = format!("{file}.fasta: expected nucleic acids, found proteins");
        case.fails(&args, 65, &message);
    }
    let args = "short.fasta --shards 1 --translate orf --alphabet nucleotide";
    case.fails(
        args,
        65,
        "short.fasta: record 1 'p': expected bases for --translate, found 'I' at position 6",
    );
}

#[test]
fn a_contig_may_be_longer_than_a_protein() {
    let bases = "GCA".repeat(6 << 20);
    let case = Case::new();
    case.write("long.fna", format!(">c\n{bases}\n"));
    let message = "record 1 'c': the sequence is too long: expected at most 16777216 bytes";
    case.fails("long.fna --shards 1 --alphabet protein", 65, message);
    case.succeeds("long.fna --shards 1 --translate orf --min-residues 6291456");
    let row = &case.rows()[0];
    assert_eq!((&*row.id, row.length), ("c_1_1_18874368", 6 << 20));
}

#[test]
fn neither_threads_nor_compression_change_the_shards() {
    let mut state = 1u32;
    let mut contig = |name: usize| {
        let bases: String = (0..9_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b"ACGT"[(state >> 30) as usize])
            })
            .collect();
        format!(">contig{name} of chance\n{bases}\n")
    };
    let fasta: String = (0..200).map(&mut contig).collect();
    let case = Case::new();
    case.write("a.fna", &fasta);
    case.write(
        "a.fna.zst",
        zstd::encode_all(fasta.as_bytes(), 1).expect("memory"),
    );
    let files = |args: &str| {
        case.succeeds(args);
        let mut files = case.files();
        // It has the name of the input.
        files.remove(Path::new("manifest.json"));
        fs::remove_dir_all(case.out()).expect("remove");
        files
    };
    let one = files("a.fna --shards 3 --translate orf --threads 1");
    assert!(one == files("a.fna.zst --shards 3 --translate orf --threads 4"));
}

#[test]
fn invalid_command_lines() {
    let case = Case::new();
    case.write("a.fna", ">a\nGCA\n");
    for (options, expected) in [
        ("--genetic-code 11", "--translate"),
        (
            "--translate orf --genetic-code 7",
            "expected one of NCBI's genetic codes: 1, 2, 3, 4, 5, 6, 9",
        ),
        (
            "--translate orf --stops x",
            "expected --translate six-frame with it",
        ),
        (
            "--translate six-frame --orf-between stops",
            "expected --translate orf with it",
        ),
        ("--alphabet nucleotide", "expected --translate with it"),
        (
            "--translate orf --alphabet protein",
            "--translate expects contigs",
        ),
    ] {
        case.fails(&format!("a.fna --shards 1 {options}"), 2, expected);
    }
}
