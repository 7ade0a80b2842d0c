use std::io::{self, Cursor, Read};

use plmkit_kit::{Exit, Failure};
use proptest::prelude::*;

use super::*;
use crate::records::Record;

const LIMITS: Limits = Limits {
    id_bytes: 40,
    description_bytes: 20,
    sequence_bytes: 60,
    blank_bytes: 100,
    drop_blanks: false,
    pir: false,
};

/// Yields at most so many bytes at a time.
struct Few(Cursor<Vec<u8>>, usize);

impl Read for Few {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

/// Reads `text` in blocks of about `block` bytes. Returns the records, and how many descriptions were recoded and cut.
fn read(text: &[u8], block: usize) -> Result<(Records, [u64; 2]), ShardError> {
    let input = Path::new("a.fasta");
    let stream = Few(Cursor::new(text.to_vec()), block);
    let source = Source::new(input, || Ok(stream), &Stop::default())?;
    let mut reader = FastaReader::new(source, LIMITS, block);
    let mut records = Records::default();
    let mut changed = [0; 2];
    while let Some(block) = reader.read_block()? {
        let parsed = block.parse();
        parsed
            .records
            .iter()
            .for_each(|record| records.push(record));
        let [(_, recoded), (_, cut), _] = parsed.changes;
        changed = [changed[0] + recoded, changed[1] + cut];
        if let Some(error) = parsed.error {
            let record = records.len() as u64 + 1;
            return Err(ShardError::Record(input.to_owned(), record, error));
        }
    }
    assert_eq!(reader.finish(0)?.bytes, text.len() as u64);
    Ok((records, changed))
}

type Owned = (String, Option<String>, String);

fn short(text: &str) -> Vec<Owned> {
    let (records, _) = read(text.as_bytes(), 7).expect("FASTA");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let short = |found: Record<'_>| record(found.id, found.description, &text(found.sequence));
    records.iter().map(short).collect()
}

fn message(text: &[u8]) -> String {
    let error = read(text, 7).expect_err("not FASTA");
    assert_eq!(error.exit(), Exit::Data);
    error.to_string()
}

fn record(id: &str, description: Option<&str>, sequence: &str) -> Owned {
    (
        id.to_owned(),
        description.map(str::to_owned),
        sequence.to_owned(),
    )
}

#[test]
fn line_ends_blank_lines_and_a_missing_last_newline_do_not_matter() {
    let expected = [
        record("P1", Some("a b"), "MKVLA"),
        record("P2", None, ""),
        record("P3", None, "G"),
    ];
    for text in [
        ">P1 a b\nMKV\nLA\n>P2\n>P3\nG\n",
        "\n \n>P1 a b\n\nMKV\n\nLA\n\n>P2\n\n>P3\nG",
        "\r\n>P1\ta b \r\nMKV\r\nLA\r\n\r\n>P2 \r\n>P3\r\nG",
    ] {
        assert_eq!(short(text), expected, "{text:?}");
    }
    assert_eq!(short(""), []);
    assert_eq!(short("\n\n"), []);
}

#[test]
fn ids_may_be_missing_and_descriptions_are_recoded() {
    let text = b">P1 prot\xe9ine\nMK\n> P2 prot\xc3\xa9ine\nMK\n>\n";
    let (records, changed) = read(text, 7).expect("FASTA");
    assert_eq!(changed, [1, 0]);
    let found: Vec<_> = records
        .iter()
        .map(|record| (record.id, record.description))
        .collect();
    let expected = [
        ("P1", Some("prot\u{fffd}ine")),
        ("", Some("P2 prot\u{e9}ine")),
        ("", None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn limits_hold_to_the_byte() {
    let header = |size| format!(">{}\nMK\n", "P".repeat(size));
    for (rest, block) in [("", 7), (" a protein", 7), ("", 200)] {
        let header = |size| header(size).replacen('\n', &format!("{rest}\n"), 1);
        assert!(read(header(LIMITS.id_bytes - 1).as_bytes(), block).is_ok());
        let error = read(header(LIMITS.id_bytes).as_bytes(), block).expect_err("too long");
        let what = "record 1: the header line is too long: expected at most 40 bytes";
        assert!(error.to_string().contains(what), "{error}");
    }
    let sequence = |size| {
        format!(
            ">P1\n{}\n{}\n>P2\nMK\n",
            "M".repeat(20),
            "M".repeat(size - 20)
        )
    };
    assert!(read(sequence(LIMITS.sequence_bytes).as_bytes(), 7).is_ok());
    let error = message(sequence(LIMITS.sequence_bytes + 1).as_bytes());
    assert_eq!(
        error,
        "a.fasta: record 1 'P1': the sequence is too long: expected at most 60 bytes (line 2)"
    );
    let after = |blanks| [&b"\n".repeat(blanks)[..], b">P1\nMK\n"].concat();
    assert!(read(&after(LIMITS.blank_bytes), 7).is_ok());
    assert_eq!(
        message(&after(200)),
        "a.fasta: not FASTA: expected '>' at the start of line 105, found blank lines only"
    );
}

#[test]
fn a_long_description_is_cut_whole_characters_are_kept() {
    // The blank before a description counts.
    for (description, kept, cut) in [
        ("0123456789012345678".to_owned(), "0123456789012345678", 0),
        ("01234567890123456789".to_owned(), "0123456789012345678", 1),
        (
            "0123456789é0123456€\u{1}".repeat(30),
            "0123456789é0123456",
            1,
        ),
        ("\u{e9}".repeat(500), "ééééééééé", 1),
        (format!("{}x", " ".repeat(300)), "", 1),
    ] {
        for end in ["\n", "\r\n", "\nMK\n>b\nMK\n", ""] {
            for block in [1, 7, 1 << 10] {
                let text = format!(">a {description}{end}");
                let (records, changed) = read(text.as_bytes(), block).expect("FASTA");
                let found = records.get(0).description.unwrap_or_default();
                assert_eq!((found, changed), (kept, [0, cut]), "{text:?}");
                assert_eq!(records.get(0).id, "a");
            }
        }
    }
    for block in [7, 1 << 10] {
        let text = format!(">a {}\rMK\n", "x".repeat(500));
        let error = read(text.as_bytes(), block).expect_err("residues in the header");
        assert!(error.to_string().contains("carriage return"), "{error}");
    }
}

proptest! {
    #[test]
    fn records_do_not_depend_on_how_the_bytes_arrive(
        text in "(>[ab> ]{1,6}[é ]{0,60}\r?\n)?[MK>* \r\n]{0,60}",
        block in 1usize..20,
    ) {
        let text = text.as_bytes();
        let (whole, parts) = (read(text, 1 << 10), read(text, block));
        match (whole, parts) {
            (Ok((whole, changed)), Ok((parts, found))) => {
                prop_assert_eq!(strip(&whole), strip(&parts));
                prop_assert_eq!(changed, found);
            }
            (Err(_), Err(_)) => {}
            (whole, parts) => prop_assert!(false, "{:?} and {:?}", whole, parts),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, block in 1usize..20) {
        let _ = read(&bytes, block);
        let _ = read(&[b">a\n", bytes.as_slice()].concat(), block);
    }
}

/// Removes white space. A carriage return at the end of a line may be part of the sequence.
fn strip(records: &Records) -> Vec<(&str, Option<&str>, Vec<u8>)> {
    let residues = |sequence: &[u8]| {
        let residues = sequence.iter().filter(|byte| !byte.is_ascii_whitespace());
        residues.copied().collect()
    };
    records
        .iter()
        .map(|record| (record.id, record.description, residues(record.sequence)))
        .collect()
}
