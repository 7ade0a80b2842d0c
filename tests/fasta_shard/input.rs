//! Inputs: sources, compression and defects.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::case::{Case, done, fed, proteins};
use crate::common::run;

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn bgzip(text: &[u8]) -> Vec<u8> {
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    writer.write_all(text).expect("memory");
    writer.finish().expect("memory")
}

/// With a checksum, like the command line tool.
fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("memory");
    encoder.include_checksum(true).expect("a parameter");
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn compression_and_source_change_no_byte_of_a_shard() {
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
        let mut files = case.files();
        files.remove(Path::new("manifest.json"));
        files
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
    let stderr = done(&output);
    assert!(stderr.contains("empty.fasta: no records"));
    assert_eq!(case.ids(), ["a", "b", "d", "c"]);
    let inputs = case.manifest().inputs.into_iter();
    let records = inputs.map(|input| format!("{} {}", input.name, input.records));
    let expected = ["a.fasta 2", "empty.fasta 0", "- 1", "c.fasta.gz 1"];
    assert!(records.eq(expected));
}

#[test]
fn missing_and_empty_inputs() {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    std::fs::create_dir(case.path("folder")).expect("folder");
    case.write("blank.fasta", "\n\r\n \n");
    case.write("empty.gz", gzip(b""));
    for empty in ["empty.fasta", "cut.fasta.gz", "cut.zst"] {
        case.write(empty, "");
    }
    let missing = "no.fasta: cannot open: no such file or directory";
    let no_records = "blank.fasta, empty.gz: no FASTA records";
    // A copy that was interrupted before its first byte.
    let cut = "cut.fasta.gz: the gzip stream is cut";
    for (inputs, code, message) in [
        ("no.fasta", 66, missing),
        ("a.fasta no.fasta", 66, missing),
        ("folder", 66, "folder: cannot open: is a directory"),
        ("a.fasta/b", 66, "a.fasta/b: cannot open: not a directory"),
        ("empty.fasta", 65, "empty.fasta: no FASTA records"),
        ("blank.fasta empty.gz", 65, no_records),
        ("-", 65, "standard input: no FASTA records"),
        ("a.fasta cut.fasta.gz", 65, cut),
        ("a.fasta cut.zst", 65, "cut.zst: the zstd stream is cut"),
    ] {
        case.refuses(inputs, code, message);
    }
}

#[test]
fn damage_is_reported_before_its_consequences() {
    let text = proteins(2000, 3);
    // The second half of the file repeats the first.
    let twice = text.repeat(2);
    for (name, pack) in [("a.gz", gzip as fn(&[u8]) -> Vec<u8>), ("a.zst", zstd)] {
        let case = Case::new();
        let mut whole = pack(twice.as_bytes());
        case.write(name, &whole);
        case.refuses(name, 65, "expected a new id");
        let near_end = whole.len() - 6;
        whole[near_end] ^= 1;
        case.write(name, &whole);
        case.refuses(name, 65, "stream is damaged");
    }
}

#[test]
fn inputs_that_are_not_fasta() {
    let case = Case::new();
    let pdb = "a.pdb: not FASTA: expected '>' at the start of line 1, found 'HEADER    HYDROLASE'";
    let fastq = "start of line 2, found '@read1'";
    let xz = "a.xz: expected plain, gzip, bgzip or zstd, found xz";
    let mac = "record 1 'a': expected lines that end in LF or CRLF";
    let page = "record 1 'a': found 'Too Many Requests' in its sequence";
    let page_in_gzip = [gzip(b">a\nMKV\n"), gzip(b"Too Many Requests\n")].concat();
    for (name, bytes, message) in [
        ("page.gz", &page_in_gzip[..], page),
        ("a.pdb", b"HEADER    HYDROLASE\n", pdb),
        ("a.fastq", b"\n@read1\nMK\n+\nII\n", fastq),
        ("a.fasta", b"; old style\n>a\nMK\n", "found '; old style'"),
        ("a.xz", b"\xfd7zXZ\0\0\x04", xz),
        ("mac.fasta", b">a one\rMK\r", mac),
    ] {
        case.write(name, bytes);
        case.refuses(name, 65, message);
    }
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
            case.refuses(name, 65, &format!("{name}: the {format} stream is cut"));
        }
        let mut damaged = whole;
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        case.write(name, damaged);
        // Damaged text may be refused before the checksum of its block.
        case.refuses(name, 65, &format!("{name}: "));
    }
}

#[test]
fn what_other_tools_leave_out_or_add_at_the_end_of_a_stream_is_no_error() {
    let text = proteins(300, 2);
    let whole = bgzip(text.as_bytes());
    let endless = &whole[..whole.len() - 28];
    let zeros = [0; 512];
    let missing = "warning: a.gz: the end block of BGZF, 28 bytes, is missing";
    for (bytes, warns) in [
        ([&gzip(text.as_bytes())[..], &zeros].concat(), false),
        ([&whole[..], &zeros].concat(), false),
        ([endless, &zeros].concat(), true),
        (endless.to_vec(), true),
    ] {
        let case = Case::new();
        case.write("a.gz", &bytes);
        let stderr = run(&mut case.command("a.gz --shards 1"));
        assert_eq!(stderr.contains(missing), warns, "{stderr}");
        assert_eq!(case.manifest().records, 300);
        case.write("a.gz", [&bytes[..], b"\0garbage"].concat());
        case.refuses("a.gz --force", 65, "a.gz: the gzip stream is ");
    }
    // A block is cut.
    let case = Case::new();
    case.write("a.gz", &endless[..endless.len() - 1]);
    case.refuses("a.gz", 65, "a.gz: the gzip stream is cut");
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_that_fails() {
    // The first page of a process is never mapped.
    let message = "/proc/self/mem: cannot read: input/output error";
    Case::new().refuses("/proc/self/mem", 74, message);
}
