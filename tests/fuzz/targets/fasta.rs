//! FASTA in every compression and under every policy: every record is accounted for, and does not depend on line wrapping or
//! compression.
#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use plmkit_contract::ShardRow;
use plmkit_kit::Stop;
use plmkit_fuzz::{as_file, judged};
use plmkit_sequence::{
    FastaReader, InvalidPolicy, Limits, LongPolicy, Outcome, Policy, Record, Records, ShardError,
    normalise,
};

/// The longest header that is read.
const HEADER_BYTES: usize = 1 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Some(records) = judged(records(bytes, HEADER_BYTES)) else {
        return;
    };
    for record in records.iter().flat_map(Records::iter) {
        policies().for_each(|policy| account(&policy, record));
    }
    let (records, text) = rewrapped(&records);
    // One compression per input.
    let compressed = match bytes.len() % 4 {
        0 => text,
        1 => gzip(&text),
        2 => bgzf(&text),
        _ => zstd(&text),
    };
    // Each byte that was not UTF-8 became a character of three bytes.
    let again = self::records(&compressed, 3 * HEADER_BYTES).expect("what was read once");
    assert!(again.iter().flat_map(Records::iter).map(owned).eq(records));
});

/// Reads all records.
fn records(bytes: &[u8], header_bytes: usize) -> Result<Vec<Records>, ShardError> {
    as_file(bytes, |path| {
        let limits = Limits {
            id_bytes: header_bytes,
            description_bytes: header_bytes,
            sequence_bytes: 1 << 14,
            ..Limits::default()
        };
        let mut reader = FastaReader::open(path, limits, &Stop::default())?;
        std::iter::from_fn(|| reader.read().transpose()).collect()
    })
}

fn policies() -> impl Iterator<Item = Policy> {
    let invalid = [
        InvalidPolicy::Error,
        InvalidPolicy::X,
        InvalidPolicy::Reject,
    ];
    let long = [
        LongPolicy::Truncate,
        LongPolicy::Window,
        LongPolicy::Separate,
        LongPolicy::Reject,
    ];
    invalid.into_iter().flat_map(move |invalid| {
        long.map(|long| Policy {
            invalid,
            min_residues: 2,
            max_residues: 10,
            long,
            overlap: Some(3),
        })
    })
}

/// Expects that the record is rejected, or its rows hold every residue, or the run ends.
fn account(policy: &Policy, record: Record) {
    let mut sequence = record.sequence.to_vec();
    match policy.prepare(None, !record.id.is_empty(), &mut sequence) {
        (_, Err(_)) => assert_eq!(policy.invalid, InvalidPolicy::Error),
        (length, Ok(Outcome::Accepted(_))) => {
            let sequence = &sequence[..length];
            cover(policy, policy.protein(0, Record { sequence, ..record }));
        }
        (_, Ok(outcome)) => assert!(matches!(outcome, Outcome::Rejected(_))),
    }
}

fn cover(policy: &Policy, protein: ShardRow) {
    let mut covered = 0;
    for row in policy.rows(protein) {
        let start = row.key.start as usize;
        assert!(start <= covered, "a gap before {start}");
        covered = start + row.sequence.len();
        assert_eq!(row.sequence, &protein.sequence[start..covered]);
        let is_long = policy.separates(protein.key.length);
        assert!(is_long || row.sequence.len() <= policy.max_residues as usize);
    }
    assert_eq!(covered, protein.sequence.len());
    assert_eq!(protein.key.truncated, covered < protein.key.length as usize);
}

/// Id, description and sequence.
type Owned = (String, Option<String>, Vec<u8>);

fn owned(record: Record) -> Owned {
    let description = record.description.map(str::to_owned);
    (record.id.to_owned(), description, record.sequence.to_vec())
}

/// Normalises the residues of the records; also returns a file of them with lines of 7 residues.
fn rewrapped(records: &[Records]) -> (Vec<Owned>, Vec<u8>) {
    let mut records: Vec<Owned> = records.iter().flat_map(Records::iter).map(owned).collect();
    let mut text = Vec::new();
    for (id, description, sequence) in &mut records {
        let (length, changes) = normalise(sequence, true);
        changes.expect("anything else becomes X");
        sequence.truncate(length);
        text.push(b'>');
        text.extend(id.bytes());
        if let Some(description) = description {
            text.push(b' ');
            text.extend(description.bytes());
        }
        text.push(b'\n');
        for line in sequence.chunks(7) {
            text.extend(line);
            text.push(b'\n');
        }
    }
    (records, text)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn bgzf(text: &[u8]) -> Vec<u8> {
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    writer.write_all(text).expect("memory");
    writer.finish().expect("memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 1).expect("memory")
}
