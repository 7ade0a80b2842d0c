//! What becomes of a record: ids, residues, lengths.

use std::fs;

use plmkit_contract::Reason;

use crate::case::Case;

/// Makes one shard of `fasta`.
fn made(fasta: impl AsRef<[u8]>, options: &str) -> Case {
    let case = Case::new();
    case.write("a.fasta", fasta);
    case.succeeds(&format!("a.fasta --shards 1{options}"));
    case
}

fn refused(fasta: impl AsRef<[u8]>, options: &str, message: &str) {
    let case = Case::new();
    case.write("a.fasta", fasta);
    case.fails(&format!("a.fasta --shards 1{options}"), 65, message);
}

/// Makes one shard of `fasta` and expects these lines of rejects and these sequences, each with its ordinal.
fn expect(fasta: &str, options: &str, rejects: &str, expected: &[(u64, &str)]) -> Case {
    let case = made(fasta, options);
    assert_eq!(
        case.rejects(),
        format!("ordinal,id,length,reason\n{rejects}")
    );
    let rows = case.rows();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.ordinal, &*row.sequence))
        .collect();
    assert_eq!(found, expected, "{fasta:?}");
    case
}

#[test]
fn records_that_are_rejected_and_accepted() {
    let empty = "0,a,0,empty\n2,c,0,empty\n3,d,0,empty\n";
    let case = expect(">a\n>b\nMK\n>c\n \n\n>d\n*\n", "", empty, &[(1, "MK")]);
    let manifest = case.manifest();
    assert_eq!((manifest.records, manifest.accepted), (4, 1));

    expect(">a\nMK\n", "", "", &[(0, "MK")]);
    let short = ">a\nMK\n>b\nMKV\n";
    expect(
        short,
        " --min-residues 3",
        "0,a,2,too_short\n",
        &[(1, "MKV")],
    );

    let case = expect(">a\nmkV*\n>b\nM K\tV*\n", "", "", &[(0, "MKV"), (1, "MKV")]);
    let changed = case.manifest().changed;
    assert_eq!(
        (
            changed["residues_uppercased"],
            changed["terminal_stops_removed"]
        ),
        (2, 2)
    );
    assert!(case.rows().iter().all(|row| row.length == 3));
}

#[test]
fn where_all_are_rejected_there_is_an_empty_shard() {
    for target in ["--shards 2", "--max-shard-tokens 100"] {
        let case = Case::new();
        case.write("a.fasta", ">a\n");
        case.says(&format!("a.fasta {target}"), "every record was rejected");
        assert_eq!(case.rejects(), "ordinal,id,length,reason\n0,a,0,empty\n");
        assert!(case.manifest().shards.iter().all(|shard| shard.rows == 0));
        assert_eq!(case.rows(), []);
    }
}

#[test]
fn ids_of_every_kind() {
    let long = "x".repeat(10_000);
    let case = made(
        format!(">sp|P1/2|a\\b,\"c\" d e\nMK\n>{long}\nMK\n>ä\nMK\n>b,\"\n\n"),
        "",
    );
    let ids: Vec<String> = case.rows().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["sp|P1/2|a\\b,\"c\"", &long, "ä"]);
    assert!(case.rejects().ends_with("3,\"b,\"\"\",0,empty\n"));
}

#[test]
fn records_without_an_id_are_set_aside() {
    let fasta = ">a\nMK\n> b\nMKV\n>\nM-K\n>\n>c\nM\n";
    for duplicates in ["error", "suffix", "keep"] {
        let options = format!(" --invalid reject --duplicate-ids {duplicates}");
        let rejects = "1,,3,no_id\n2,,3,no_id\n3,,0,no_id\n";
        let case = expect(fasta, &options, rejects, &[(0, "MK"), (4, "M")]);
        let rejects = plmkit_store::read_rejects(&case.out().join("rejects.csv"));
        assert_eq!(rejects.expect("a list").lines.len(), 3);
        assert_eq!(case.manifest().rejected[&Reason::NoId], 3);
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    refused(
        "\u{feff}>a\nMK\n",
        "",
        "a.fasta: not FASTA: expected '>' at the start of line 1, found a byte order mark (bytes EF BB BF)",
    );
    // Elsewhere it can be seen.
    refused(
        ">a\u{feff}\nMK\n>a\u{feff}\nMK\n",
        "",
        "record 2 'a\\u{feff}'",
    );
}

#[test]
fn ids_that_are_refused() {
    for policy in ["", " --invalid x"] {
        refused(
            ">a\nMK\n> b\nMK\n",
            policy,
            "a.fasta: record 2: expected an id after '>', found none; --invalid reject sets the record aside",
        );
    }
    refused(
        b">a\nMK\n>P\xe9\x1b\nMK\n",
        "",
        "a.fasta: record 2 'P\u{fffd}\\u{1b}': expected an id in UTF-8",
    );
    refused(
        format!(">a {}\nMK\n", "x".repeat(1 << 20)),
        "",
        "record 1: the header line is too long: expected at most 1048576",
    );
    let long = "y".repeat(10_000);
    refused(
        format!(">{long}\nM1\n"),
        "",
        &format!("record 1 '{}…': expected residues", &long[..80]),
    );
}

#[test]
fn a_description_in_another_encoding_is_recoded_and_counted() {
    let case = made(b">a prot\xe9ine\nMK\n", "");
    assert_eq!(case.manifest().changed["descriptions_recoded"], 1);
}

#[test]
fn ids_that_come_again() {
    let fasta = ">a\nMK\n>b\nMA\n>a\nMV\n>a_2\nML\n";
    refused(
        fasta,
        "",
        "a.fasta: record 3 'a': expected a new id, found that of record 1 of a.fasta",
    );
    let ids = |policy: &str| -> Vec<String> {
        let case = made(fasta, &format!(" --duplicate-ids {policy}"));
        case.rows().into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids("suffix"), ["a", "b", "a_3", "a_2"]);
    assert_eq!(ids("keep"), ["a", "b", "a", "a_2"]);

    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>b\n\n");
    case.write("b.fasta", ">c\nMK\n>b\nMK\n");
    case.fails(
        "a.fasta b.fasta --shards 1",
        65,
        "b.fasta: record 2 'b': expected a new id, found that of record 2 of a.fasta",
    );
}

#[test]
fn a_new_id_is_no_other_records_and_is_listed() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>a\nMA\n");
    case.write("b.fasta", ">b\nMV\n>a_2\nML\n");
    let args = "a.fasta b.fasta --shards 1 --duplicate-ids suffix";
    assert_eq!(case.succeeds(args).changed["ids_suffixed"], 1);
    let ids = || -> Vec<String> { case.rows().into_iter().map(|row| row.id).collect() };
    assert_eq!(ids(), ["a", "a_3", "b", "a_2"]);
    let renamed = case.out().join("renamed.csv");
    let listed = || fs::read_to_string(&renamed).expect("renamed.csv");
    assert_eq!(listed(), "ordinal,id,new_id\n1,a,a_3\n");
    // A complete set is left alone; a changed list is found.
    case.succeeds(args);
    fs::write(&renamed, "ordinal,id,new_id\n1,a,a_4\n").expect("write");
    let output = case.command(args).output().expect("run");
    crate::case::refused(&output, 65, "renamed.csv: damaged or altered");
    case.succeeds(&format!("{args} --force"));
    assert_eq!(listed(), "ordinal,id,new_id\n1,a,a_3\n");
    // Nobody is renamed, so the list of the older set goes.
    case.succeeds("b.fasta --shards 1 --duplicate-ids suffix --force");
    assert!(!renamed.exists());
}

#[test]
fn a_pipe_is_read_once_so_a_new_id_may_be_a_later_records() {
    let case = Case::new();
    let command = case.command("- --shards 1 --duplicate-ids suffix");
    let output = crate::case::fed(command, ">a\nMK\n>a\nMA\n>a_2\nML\n");
    let message = "standard input: record 3 'a_2': its id is one that --duplicate-ids suffix gave";
    crate::case::refused(&output, 65, message);
}

#[test]
fn what_begins_a_record_or_a_comment_is_in_no_sequence() {
    for (fasta, found) in [
        (">a one\nMKV>b two\nMKL\n", ">"),
        (">a one\nMKV\r>b two\nMKL\n", ">"),
        (">a one\nMKV\n\r>b two\nMKL\n", ">"),
        (">a one\nMKV\n >b two\nMKL\n", ">"),
        (">a one\nMKV\n; a comment\nMKL\n", ";"),
    ] {
        for policy in ["error", "x", "reject"] {
            let message = format!("a.fasta: record 1 'a': found '{found}' in its sequence");
            refused(fasta, &format!(" --invalid {policy}"), &message);
        }
    }
    for policy in ["error", "x", "reject"] {
        let message = "a.fasta: record 1 'a': expected lines that end in LF or CRLF";
        refused(
            ">a\rMKVLA\n>b\nMK\n",
            &format!(" --invalid {policy}"),
            message,
        );
    }
    // Line ends of two conversions.
    expect(">a one\r\r\nMK\r\r\n", "", "", &[(0, "MK")]);
}

#[test]
fn nucleic_acids_are_refused() {
    let contigs: Vec<String> = (0..50)
        .map(|i| format!(">c{i}\nACGTTGCANNACGTACGTTG{}\n", "acgt".repeat(i)))
        .collect();
    let contigs = contigs.concat();
    let message = "a.fasta: expected proteins, found nucleic acids";
    refused(&contigs, "", message);
    refused(">r\nAUGGCUUACGGAUUCGCCAUGGA\n", " --invalid x", message);
    let case = made(&contigs, " --alphabet protein");
    assert_eq!(case.manifest().accepted, 50);
    made(">p\nGAGAGAGATGAGA\n>q\nMKTAYIAKQRQISFVKSHFSRQ\n", "");
}

#[test]
fn characters_that_are_no_residue() {
    for (sequence, found) in [
        ("MK1", "found '1' at position 3"),
        ("M*K", "found '*' at position 2"),
        ("MKJ", "found 'J' at position 3"),
        ("M K\n-", "found '-' at position 3"),
        ("M\0K", "found '\\x00' at position 2"),
        ("MK;a", "found ';' at position 3"),
    ] {
        let fasta = format!(">ok\nMKVXBZUO\n>bad\n{sequence}\n");
        refused(
            &fasta,
            "",
            &format!("a.fasta: record 2 'bad': expected residues, {found}"),
        );
        let case = made(&fasta, " --invalid reject");
        let rejects = case.rejects();
        assert!(rejects.contains("\n1,bad,") && rejects.ends_with(",invalid_residue\n"));
        assert_eq!(case.rows()[0].sequence, "MKVXBZUO");
        let case = made(&fasta, " --invalid x");
        assert!(case.rows()[1].sequence.contains('X'));
        assert_eq!(case.manifest().changed["residues_replaced_by_x"], 1);
    }
}

#[test]
fn a_protein_of_40000_residues_under_each_policy() {
    let sequence: String = "MKVLAAGIVG".repeat(4000);
    let fasta = format!(">short\nMK\n>long\n{sequence}\n>last\nMV\n");
    let rows = |case: &Case| -> Vec<(u32, usize, u32, bool)> {
        let rows = case.rows().into_iter().filter(|row| row.ordinal == 1);
        rows.map(|row| (row.start, row.sequence.len(), row.length, row.truncated))
            .collect()
    };

    let case = made(&fasta, "");
    assert_eq!(rows(&case), [(0, 1022, 40_000, true)]);
    assert_eq!(case.manifest().changed["proteins_truncated"], 1);
    assert_eq!(case.manifest().changed["residues_truncated"], 40_000 - 1022);

    let case = made(&fasta, " --long-policy window");
    let windows = rows(&case);
    assert_eq!(
        windows[..2],
        [(0, 1022, 40_000, false), (766, 1022, 40_000, false)]
    );
    let last = windows[windows.len() - 1];
    assert_eq!(last.0 as usize + last.1, 40_000);
    for row in case.rows().iter().filter(|row| row.ordinal == 1) {
        let start = row.start as usize;
        assert_eq!(row.sequence, sequence[start..start + row.sequence.len()]);
    }

    let case = made(&fasta, " --long-policy split-off");
    assert_eq!(rows(&case), [(0, 40_000, 40_000, false)]);
    let shards = case.manifest().shards;
    let files: Vec<_> = shards
        .iter()
        .map(|shard| (&*shard.file, shard.rows))
        .collect();
    assert_eq!(
        files,
        [("shard-00000.parquet", 2), ("shard-long-00000.parquet", 1)]
    );

    let case = made(&fasta, " --long-policy reject");
    assert_eq!(rows(&case), []);
    assert_eq!(
        case.rejects(),
        "ordinal,id,length,reason\n1,long,40000,too_long\n"
    );
}

#[test]
fn windows_of_a_protein_share_a_shard() {
    let case = Case::new();
    case.write("a.fasta", crate::case::proteins(60, 4));
    case.succeeds("a.fasta --shards 4 --long-policy window --max-residues 200 --overlap 50");
    let manifest = case.manifest();
    let mut seen = std::collections::HashMap::new();
    for shard in &manifest.shards {
        for row in crate::case::rows(&case.out().join(&shard.file)) {
            assert_eq!(
                seen.entry(row.ordinal).or_insert(shard.file.clone()),
                &shard.file
            );
        }
    }
    assert_eq!(seen.len(), 60);
    assert!(manifest.rows > 100);
}
