//! Inputs: where they come from, how they are packed, and what is wrong with them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::case::{Case, done, fed, proteins};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn bgzip(text: &[u8]) -> Vec<u8> {
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    writer.write_all(text).expect("memory");
    writer.finish().expect("memory")
}

/// As the command line tool writes it, with a checksum.
fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("memory");
    encoder.include_checksum(true).expect("a parameter");
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn the_wrapper_changes_no_byte_of_a_shard() {
    let text = proteins(200, 1);
    let (first, second) = text.as_bytes().split_at(text.len() / 3);
    let made = |bytes: Vec<u8>, stdin: bool| {
        let case = Case::new();
        case.write("in", &bytes);
        if stdin {
            done(&fed(case.command("- --shards 3"), bytes));
        } else {
            case.succeeds("in --shards 3");
        }
        let names = [
            "shard-00000.parquet",
            "shard-00001.parquet",
            "shard-00002.parquet",
            "rejects.csv",
        ];
        names.map(|name| std::fs::read(case.out().join(name)).expect("read"))
    };
    let plain = made(text.clone().into_bytes(), false);
    for pack in [gzip, bgzip, zstd] {
        assert!(made(pack(text.as_bytes()), false) == plain);
        assert!(made(pack(text.as_bytes()), true) == plain);
        assert!(
            made([pack(first), pack(second)].concat(), false) == plain,
            "members or frames joined"
        );
    }
    assert!(made(text.into_bytes(), true) == plain);
}

#[test]
fn several_inputs_are_one() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n>b\nMV\n");
    case.write("empty.fasta", "");
    case.write("c.fasta.gz", gzip(b">c\nMA\n"));
    let output = fed(
        case.command("a.fasta empty.fasta - c.fasta.gz --shards 1"),
        ">d\nML",
    );
    done(&output);
    let rows = case.rows();
    let ids: Vec<(u64, &str)> = rows
        .iter()
        .map(|row| (row.ordinal, row.id.as_str()))
        .collect();
    assert_eq!(ids, [(0, "a"), (1, "b"), (2, "d"), (3, "c")]);
    let inputs = case.manifest().inputs;
    let records: Vec<(&str, u64)> = inputs
        .iter()
        .map(|input| (input.name.as_str(), input.records))
        .collect();
    assert_eq!(
        records,
        [
            ("a.fasta", 2),
            ("empty.fasta", 0),
            ("-", 1),
            ("c.fasta.gz", 1)
        ]
    );
    assert!(crate::case::stderr(&output).contains("empty.fasta: no records"));
}

#[test]
fn line_ends_and_blank_lines_do_not_matter() {
    let case = Case::new();
    case.write("a.fasta", "\r\n>a one\r\nMK\r\n\r\nVL\r\n\r\n>b\r\nM A\tG");
    case.succeeds("a.fasta --shards 1");
    let sequences: Vec<String> = case.rows().into_iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, ["MKVL", "MAG"]);
}

#[test]
fn missing_inputs() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    std::fs::create_dir(case.path("folder")).expect("folder");
    case.fails(
        "no.fasta --shards 1",
        66,
        "no.fasta: cannot open: no such file or directory",
    );
    case.fails("a.fasta no.fasta --shards 1", 66, "no.fasta: cannot open");
    case.fails(
        "folder --shards 1",
        66,
        "folder: cannot open: is a directory",
    );
    case.fails(
        "a.fasta/b --shards 1",
        66,
        "a.fasta/b: cannot open: not a directory",
    );
}

#[test]
fn inputs_without_records() {
    let case = Case::new();
    case.write("empty.fasta", "");
    case.write("blank.fasta", "\n\r\n \n");
    case.write("empty.gz", gzip(b""));
    case.fails(
        "empty.fasta --shards 1",
        65,
        "empty.fasta: no FASTA records",
    );
    case.fails(
        "blank.fasta empty.gz --shards 1",
        65,
        "blank.fasta, empty.gz: no FASTA records",
    );
    case.fails("- --shards 1", 65, "standard input: no FASTA records");
    // A copy that broke off before its first byte.
    for (name, format) in [("cut.fasta.gz", "gzip"), ("cut.zst", "zstd")] {
        case.write(name, "");
        case.write("a.fasta", ">a\nMK\n");
        let message = format!("{name}: the {format} stream is cut");
        case.fails(&format!("a.fasta {name} --shards 1"), 65, &message);
    }
}

#[test]
fn damage_comes_before_what_follows_from_it() {
    let text = proteins(2000, 3);
    // The second half of the file says again what the first says.
    let twice = text.repeat(2);
    for (name, pack) in [("a.gz", gzip as fn(&[u8]) -> Vec<u8>), ("a.zst", zstd)] {
        let case = Case::new();
        let mut whole = pack(twice.as_bytes());
        case.write(name, &whole);
        case.fails(&format!("{name} --shards 1"), 65, "expected a new id");
        let near_end = whole.len() - 6;
        whole[near_end] ^= 1;
        case.write(name, &whole);
        case.fails(&format!("{name} --shards 1"), 65, "stream is damaged");
    }
}

#[test]
fn inputs_that_are_not_fasta() {
    let case = Case::new();
    case.write("a.pdb", "HEADER    HYDROLASE\n");
    case.write("a.fastq", "\n@read1\nMK\n+\nII\n");
    case.write("comment.fasta", "; old style\n>a\nMK\n");
    case.write("a.xz", b"\xfd7zXZ\0\0\x04");
    case.write("mac.fasta", ">a one\rMK\r>b\rMV\r");
    case.fails(
        "a.pdb --shards 1",
        65,
        "a.pdb: not FASTA: expected '>' at the start of line 1, found 'HEADER    HYDROLASE'",
    );
    case.fails("a.fastq --shards 1", 65, "start of line 2, found '@read1'");
    case.fails("comment.fasta --shards 1", 65, "found '; old style'");
    case.fails(
        "a.xz --shards 1",
        65,
        "a.xz: expected plain, gzip, bgzip or zstd, found xz",
    );
    case.fails(
        "mac.fasta --shards 1",
        65,
        "mac.fasta: record 1 'a': expected lines that end in LF or CRLF",
    );
}

#[test]
fn cut_and_damaged_streams() {
    let case = Case::new();
    let text = proteins(300, 2);
    for (name, pack, format) in [
        ("a.gz", gzip as fn(&[u8]) -> Vec<u8>, "gzip"),
        ("a.bgz", bgzip, "gzip"),
        ("a.zst", zstd, "zstd"),
    ] {
        let whole = pack(text.as_bytes());
        for end in [whole.len() / 2, whole.len() - 1] {
            case.write(name, &whole[..end]);
            case.fails(
                &format!("{name} --shards 2"),
                65,
                &format!("{name}: the {format} stream is cut"),
            );
        }
        let mut damaged = whole;
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        case.write(name, damaged);
        // What comes out before the checksum of a block may be refused first.
        case.fails(&format!("{name} --shards 2"), 65, &format!("{name}: "));
    }
    let whole = bgzip(text.as_bytes());
    case.write("a.bgz", &whole[..whole.len() - 28]);
    case.fails("a.bgz --shards 2", 65, "a.bgz: the gzip stream is cut");
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_that_fails() {
    // The first page of a process is never mapped.
    Case::new().fails(
        "/proc/self/mem --shards 1",
        74,
        "/proc/self/mem: cannot read: input/output error",
    );
}
