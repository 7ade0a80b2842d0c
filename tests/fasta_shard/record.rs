//! Records: ids, residues, lengths.

use std::fs;

use plmkit_contract::Reason;
use plmkit_store::read_shard;

use crate::case::Case;
use crate::common::run;

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

    let (short, reject) = (">a\nMK\n>b\nMKV\n", "0,a,2,too_short\n");
    expect(short, " --min-residues 3", reject, &[(1, "MKV")]);

    let case = expect(">a\nmkV*\n>b\nM K\tV*\n", "", "", &[(0, "MKV"), (1, "MKV")]);
    let changed = case.manifest().changed;
    for change in ["residues_uppercased", "terminal_stops_removed"] {
        assert_eq!(changed[change], 2, "{change}");
    }
    assert!(case.rows().iter().all(|row| row.length == 3));
}

#[test]
fn if_all_records_are_rejected_the_shards_are_empty() {
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
    assert_eq!(case.ids(), ["sp|P1/2|a\\b,\"c\"", &long, "ä"]);
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
fn headers_that_are_refused() {
    let no_id = "a.fasta: record 2: expected an id after '>', found none; --invalid reject sets the record aside";
    for policy in ["", " --invalid x"] {
        refused(">a\nMK\n> b\nMK\n", policy, no_id);
    }
    let (header, id) = ("x".repeat(1 << 20), "y".repeat(10_000));
    let bom = "a.fasta: not FASTA: expected '>' at the start of line 1, found a byte order mark (bytes EF BB BF)";
    let too_long = "record 1: the header line is too long: expected at most 1048576";
    let cut_id = format!("record 1 '{}…': expected residues", &id[..80]);
    for (fasta, message) in [
        ("\u{feff}>a\nMK\n".as_bytes(), bom),
        // Elsewhere the mark is shown.
        (
            ">a\u{feff}\nMK\n>a\u{feff}\nMK\n".as_bytes(),
            "record 2 'a\\u{feff}'",
        ),
        (
            b">a\nMK\n>P\xe9\x1b\nMK\n",
            "a.fasta: record 2 'P\u{fffd}\\u{1b}': expected an id in UTF-8",
        ),
        (
            b">a\nMK\n>P\0\nMK\n",
            "a.fasta: record 2 'P\\u{0}': expected a header without control bytes (line 3)",
        ),
        // A block of zeros took the rest of the header and other records.
        (
            b">a\nMK\n>P a\0\0MK\n",
            "a.fasta: record 2 'P': expected a header without control bytes (line 3)",
        ),
        (format!(">{header}\nMK\n").as_bytes(), too_long),
        (format!(">{header} a protein\nMK\n").as_bytes(), too_long),
        (format!(">{id}\nM1\n").as_bytes(), &cut_id),
    ] {
        refused(fasta, "", message);
    }
}

#[test]
fn a_description_in_another_encoding_is_recoded_and_counted() {
    let case = made(b">a prot\xe9ine\nMK\n", "");
    assert_eq!(case.manifest().changed["descriptions_recoded"], 1);
}

#[test]
fn a_header_of_megabytes_is_no_reason_to_edit_the_file() {
    // Identical proteins in NCBI's nr.
    let header = "WP_000000001.1 MULTISPECIES: a protein [Bacteria]\u{1}".repeat(60_000);
    for policy in [
        "",
        " --invalid x",
        " --invalid reject",
        " --duplicate-ids suffix",
    ] {
        let case = made(format!(">{header}\nMK\n>b\nMK\n"), policy);
        assert_eq!(case.manifest().changed["descriptions_cut"], 1);
        let shard = read_shard(&case.out().join("shard-00000.parquet")).expect("a shard");
        let rows: Vec<_> = shard
            .rows()
            .iter()
            .map(|row| (row.key.id.to_owned(), row.description.map(str::len)))
            .collect();
        let kept = (1 << 16) - 1;
        assert_eq!(
            rows,
            [
                ("WP_000000001.1".to_owned(), Some(kept)),
                ("b".to_owned(), None)
            ]
        );
    }
    // Only what is kept is in memory.
    let case = Case::new();
    case.write("a.fasta", format!(">a {}\nMK\n", header.repeat(100)));
    run(&mut case.limited("-v 300000", "a.fasta --shards 1 --threads 1"));
}

#[test]
fn a_protein_has_at_most_a_mebi_of_windows() {
    let most = 1 << 20;
    let options = " --max-residues 2 --overlap 1 --long-policy window --threads 1";
    let fasta = |windows: usize| format!(">a\nMKV\n>b\n{}\n", "M".repeat(windows + 1));
    let message = "record 2 'b': 1048578 residues are 1048577 windows: expected at most 1048576; a larger --max-residues";
    refused(fasta(most + 1), options, message);
    assert_eq!(made(fasta(most), options).manifest().rows, most as u64 + 2);
}

#[test]
fn duplicate_ids() {
    let fasta = ">a\nMK\n>b\nMA\n>a\nMV\n>a_2\nML\n";
    let message = "a.fasta: record 3 'a': expected a new id, found that of record 1 of a.fasta";
    refused(fasta, "", message);
    let ids = |policy: &str| -> Vec<String> {
        let case = made(fasta, &format!(" --duplicate-ids {policy}"));
        case.ids()
    };
    assert_eq!(ids("suffix"), ["a", "b", "a_3", "a_2"]);
    assert_eq!(ids("keep"), ["a", "b", "a", "a_2"]);
    let message = "record 3 'a': expected a new id, found that of record 1 of a.fasta; --duplicate-ids drop-identical lists it in rejects.csv if its residues are equal";
    refused(fasta, " --duplicate-ids drop-identical", message);
    let fasta = ">a\nMK\n>b\nMK\n>a x\nm k*\n>b\nMK\n>c\nMV\n";
    for dedup in ["", " --dedup"] {
        let case = made(fasta, &format!(" --duplicate-ids drop-identical{dedup}"));
        let ids: &[&str] = if dedup.is_empty() {
            &["a", "b", "c"]
        } else {
            &["a", "c"]
        };
        assert_eq!(case.ids(), ids);
        let listed = "ordinal,id,length,reason\n2,a,2,duplicate\n3,b,2,duplicate\n";
        assert_eq!(case.rejects(), listed);
        assert_eq!(case.manifest().rejected[&Reason::Duplicate], 2);
    }

    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>b\n\n");
    case.write("b.fasta", ">c\nMK\n>b\nMK\n");
    let message = "b.fasta: record 2 'b': expected a new id, found that of record 2 of a.fasta";
    case.refuses("a.fasta b.fasta", 65, message);
}

#[test]
fn a_renamed_record_gets_a_unique_id_and_is_listed() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>a\nMA\n");
    case.write("b.fasta", ">b\nMV\n>a_2\nML\n");
    let args = "a.fasta b.fasta --shards 1 --duplicate-ids suffix";
    assert_eq!(case.succeeds(args).changed["ids_suffixed"], 1);
    assert_eq!(case.ids(), ["a", "a_3", "b", "a_2"]);
    let renamed = case.out().join("renamed.csv");
    let listed = || fs::read_to_string(&renamed).expect("renamed.csv");
    assert_eq!(listed(), "ordinal,id,new_id\n1,a,a_3\n");
    // A complete set is kept; a changed list is detected.
    case.succeeds(args);
    fs::write(&renamed, "ordinal,id,new_id\n1,a,a_4\n").expect("write");
    case.fails(args, 65, "renamed.csv: damaged or altered");
    case.succeeds(&format!("{args} --force"));
    assert_eq!(listed(), "ordinal,id,new_id\n1,a,a_3\n");
    // No record is renamed, so the list of the older set is removed.
    case.succeeds("b.fasta --shards 1 --duplicate-ids suffix --force");
    assert!(!renamed.exists());
}

#[test]
fn in_a_pipe_a_new_id_may_be_that_of_a_later_record() {
    let case = Case::new();
    let command = case.command("- --shards 1 --duplicate-ids suffix");
    let output = crate::case::fed(command, ">a\nMK\n>a\nMA\n>a_2\nML\n");
    let message = "standard input: record 3 'a_2': its id is one that --duplicate-ids suffix gave";
    crate::common::assert_failed(&output, 65, message);
}

#[test]
fn headers_and_comments_inside_a_sequence_are_refused() {
    for (fasta, found) in [
        (">a one\nMKV>b two\nMKL\n", "found '>' in its sequence"),
        (">a one\nMKV\r>b two\nMKL\n", "found '>' in its sequence"),
        (">a one\nMKV\n\r>b two\nMKL\n", "found '>' in its sequence"),
        (">a one\nMKV\n >b two\nMKL\n", "found '>' in its sequence"),
        (
            ">a one\nMKV\n; a comment\nMKL\n",
            "found ';' in its sequence",
        ),
        (
            ">a\rMKVLA\n>b\nMK\n",
            "expected lines that end in LF or CRLF",
        ),
    ] {
        for policy in ["error", "x", "reject"] {
            let message = format!("a.fasta: record 1 'a': {found}");
            refused(fasta, &format!(" --invalid {policy}"), &message);
        }
    }
    let message = "a.fasta: record 2 'b': found '>' in its sequence; expected headers at the start of a line and no comments (line 6)";
    refused(
        "\n>a\r\nMK\n\n>b\nMKV>c\nMK\n",
        " --invalid reject",
        message,
    );
    // Two conversions of line ends.
    expect(">a one\r\r\nMK\r\r\n", "", "", &[(0, "MK")]);
}

/// A sequence of more than a line of text, and one in blocks of ten.
const SEQUENCE: &str = "MKVLAAGIVGLCAKAYLEMSTNPKPQRKTKRNTNRRPQDVKFPGG";
const BLOCKS: &str = "MKVLAAGIVG LCAKAYLEMS TNPKPQRKTK RNTNRRPQDV KFPGG";

#[test]
fn text_in_a_sequence_is_refused_under_every_policy() {
    let blanks = |text: &str, line: usize| {
        let way_out = if text.contains(|c: char| c.is_ascii_digit()) {
            "numbers are no residues: remove them first"
        } else {
            "--drop-blanks takes every letter as a residue"
        };
        format!(
            "found '{text}' in its sequence; expected no blanks between residues, or blocks of ten in all its lines; {way_out} (line {line})"
        )
    };
    let bytes = |byte: &str, line: usize| {
        format!(
            "found '{byte}' in its sequence; expected printable ASCII; the input may be damaged, or another file may follow (line {line})"
        )
    };
    let block = format!(">a\nMK\n>b\nMKV{}\n>c\nMK\n", "\0".repeat(4096));
    let compressed = [
        b">a\nMK\n>b\nMKV\n".as_slice(),
        &crate::input::gzip(b">c\nMK\n>d\nMK\n"),
    ]
    .concat();
    let after = |text: &str| format!(">a\nMK\n>b\n{SEQUENCE}\n{text}\n>c\nMK\n");
    let before = |text: &str| format!(">a\nMK\n>b the first of\n{text}\n{SEQUENCE}\n>c\nMK\n");
    for (fasta, found) in [
        (
            after("Too Many Requests").as_bytes(),
            blanks("Too Many Requests", 5),
        ),
        (after("RETRY LATER").as_bytes(), blanks("RETRY LATER", 5)),
        (
            after("Gateway Timeout").as_bytes(),
            blanks("Gateway Timeout", 5),
        ),
        (
            after("<html>\n502 Bad Gateway").as_bytes(),
            "found '>' in its sequence".to_owned(),
        ),
        (after(BLOCKS).as_bytes(), blanks(BLOCKS, 5)),
        (
            before("two proteins of yeast").as_bytes(),
            blanks("two proteins of yeast", 4),
        ),
        (
            before("SACCHAROMYCES\tCEREVISIAE").as_bytes(),
            blanks("SACCHAROMYCES\\tCEREVISIAE", 4),
        ),
        (before("CYTOCHROME C").as_bytes(), blanks("CYTOCHROME C", 4)),
        (
            before("        1 mkvlaagivg lcakaylems").as_bytes(),
            blanks("1 mkvlaagivg lcakaylems", 4),
        ),
        (before("Met Lys Val").as_bytes(), blanks("Met Lys Val", 4)),
        (block.as_bytes(), bytes("\\x00", 4)),
        (
            format!(">a\nMK\n>b\n{BLOCKS} 45\n").as_bytes(),
            blanks(&format!("{BLOCKS} 45"), 4),
        ),
        (&compressed, bytes("\\x1f", 5)),
        (after("\0\0\0").as_bytes(), bytes("\\x00", 5)),
        (after("MK\u{b}V").as_bytes(), bytes("\\x0b", 5)),
        (after("\u{c}").as_bytes(), bytes("\\x0c", 5)),
        (after("MKV\u{a0}LAA").as_bytes(), bytes("\\xc2", 5)),
        (after("\u{feff}MKV").as_bytes(), bytes("\\xef", 5)),
        (after("MK\x7fV").as_bytes(), bytes("\\x7f", 5)),
    ] {
        for policy in [
            "error",
            "x",
            "reject",
            "x --long-policy window --max-residues 20 --overlap 5",
        ] {
            let message = format!("a.fasta: record 2 'b': {found}");
            refused(fasta, &format!(" --invalid {policy}"), &message);
        }
    }
}

#[test]
fn blanks_that_aid_reading_are_counted_and_others_read_on_request() {
    let lower = format!(
        "  {}\r\n  {}*\r\n",
        &BLOCKS[..21].to_lowercase(),
        &BLOCKS[22..].to_lowercase()
    );
    let spaced: String = SEQUENCE
        .chars()
        .flat_map(|residue| [residue, ' '])
        .collect();
    for (lines, blanks) in [
        (BLOCKS, 4),
        (&*lower, 3),
        (&*spaced, 44),
        (&format!("{SEQUENCE} \n *"), 0),
    ] {
        let case = expect(
            &format!(">a\n{lines}\n>b\nMK\n"),
            "",
            "",
            &[(0, SEQUENCE), (1, "MK")],
        );
        assert_eq!(case.manifest().changed["blanks_dropped"], blanks, "{lines}");
    }
    let case = Case::new();
    case.write("a.fasta", format!(">a\n{BLOCKS}\n"));
    case.says(
        "a.fasta --shards 1",
        "changed: blanks dropped 4; 1 row, 45 residues",
    );
    let text = ">a\nMKV\nToo Many Requests\n";
    let case = expect(text, " --drop-blanks", "", &[(0, "MKVTOOMANYREQUESTS")]);
    assert_eq!(case.manifest().changed["blanks_dropped"], 2);
    assert_eq!(case.manifest().options["drop_blanks"], true);
    refused(">a\nMKV\0\n", " --drop-blanks --invalid x", "found '\\x00'");
}

#[test]
fn pir_is_refused_or_its_titles_are_read() {
    let pir = ">P1;ONE\nCRYSTALLIN\n  MKVLAAGIVG LCAKAYLEMS\n  MK*\n>F1;TWO\r\n\r\nMKV*\r\n>three of four\nMK\n>N1;four\nits title \n";
    let message = "a.fasta: record 2 'F1;TWO': expected FASTA, found a header of PIR; --pir reads it, and the next line as its title (line 3)";
    for policy in ["error", "x", "reject --drop-blanks"] {
        refused(
            ">a\nMK\n>F1;TWO\n\nMK*\n",
            &format!(" --invalid {policy}"),
            message,
        );
    }
    let sequences = [(0, "MKVLAAGIVGLCAKAYLEMSMK"), (1, "MKV"), (2, "MK")];
    let case = expect(pir, " --pir", "3,four,0,empty\n", &sequences);
    let shard = read_shard(&case.out().join("shard-00000.parquet")).expect("a shard");
    let rows = shard.rows();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.key.id, row.description))
        .collect();
    let expected = [
        ("ONE", Some("CRYSTALLIN")),
        ("TWO", None),
        ("three", Some("of four")),
    ];
    assert_eq!(rows, expected);
    for (input, problem) in [
        (
            ">P1;a\nx\0\nMK*\n",
            "expected a header without control bytes",
        ),
        (
            ">P1;a crystallin\nMKV\nMK*\n",
            "expected an id alone in a header of PIR",
        ),
        (
            ">P1;a\n>P1;b\nMK*\n",
            "expected the title of PIR in the next line, found a header",
        ),
    ] {
        refused(input, " --pir", &format!("record 1 'P1;a': {problem}"));
    }
    made(">P12;a\nMK\n>P1\nMK\n>P2;a\nMK\n", "");
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
fn characters_that_are_not_residues() {
    for (sequence, found) in [
        ("MK1", "found '1' at position 3"),
        ("M*K", "found '*' at position 2"),
        ("MKJ", "found 'J' at position 3"),
        ("M K\n-", "found '-' at position 3"),
        ("MK;a", "found ';' at position 3"),
    ] {
        let fasta = format!(">ok\nMKVXBZUO\n>bad\n{sequence}\n");
        let message = format!("a.fasta: record 2 'bad': expected residues, {found}");
        refused(&fasta, "", &message);
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

    let case = made(&fasta, " --long-policy separate");
    assert_eq!(rows(&case), [(0, 40_000, 40_000, false)]);
    let shards = case.manifest().shards;
    let files = shards.iter().map(|shard| (&*shard.file, shard.rows));
    assert!(files.eq([("shard-00000.parquet", 2), ("shard-long-00000.parquet", 1)]));

    let reject = "1,long,40000,too_long\n";
    let kept = [(0, "MK"), (2, "MV")];
    expect(&fasta, " --long-policy reject", reject, &kept);
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
            let first = seen.entry(row.ordinal).or_insert(&shard.file);
            assert_eq!(*first, &shard.file);
        }
    }
    assert_eq!(seen.len(), 60);
    assert!(manifest.rows > 100);
}
