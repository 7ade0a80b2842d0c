use std::fs;

use plmkit_contract::{RowKey, SequenceDigest};
use plmkit_kit::{Exit, Failure};

use super::*;

/// Writes a shard with a row group for each 100 rows.
fn write(path: &Path, rows: usize) -> RowDigest {
    let encoder = Arc::new(shard_encoder(path).expect("columns"));
    let mut writer = ShardWriter::with_encoder(path, Arc::clone(&encoder)).expect("create");
    let sequence = "MKVLA".repeat(40);
    let ids: Vec<String> = (0..rows).map(|ordinal| format!("p{ordinal}")).collect();
    let rows = ids.iter().enumerate().map(|(ordinal, id)| {
        let sequence = &sequence[..=ordinal % 150];
        let key = RowKey {
            ordinal: ordinal as u64,
            id,
            start: 0,
            length: sequence.len() as u32,
            truncated: false,
            digest: SequenceDigest::new(sequence.as_bytes()),
            n_windows: 1,
        };
        ShardRow {
            key,
            description: (ordinal % 3 == 0).then_some("a protein"),
            sequence,
        }
    });
    let rows: Vec<ShardRow> = rows.collect();
    for rows in rows.chunks(100) {
        let mut columns = RowsBuilder::new(shard_schema());
        for row in rows {
            columns.push(row);
        }
        let group = encode_rows(path, &columns.batch(), &encoder).expect("encode");
        writer.append(&group).expect("append");
    }
    let provenance = Provenance::new("fasta-shard", vec![]).with("max_residues", 1022);
    let (digest, file) = writer.finish(&provenance).expect("finish");
    file.finish().expect("publish");
    digest
}

#[test]
fn rows_come_back() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    let digest = write(&path, 5000);
    let table = read_shard(&path).expect("read");
    assert_eq!(table.digest, digest);
    assert_eq!(table.provenance.options["max_residues"], 1022);
    let ordinals: Vec<u64> = table.rows().iter().map(|row| row.key.ordinal).collect();
    assert_eq!(ordinals, (0..5000).collect::<Vec<u64>>());
    let again = folder.path().join("again.parquet");
    write(&again, 5000);
    assert!(
        fs::read(&path).expect("read") == fs::read(&again).expect("read"),
        "same rows, same bytes"
    );
}

#[test]
fn no_rows_is_a_valid_shard() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    write(&path, 0);
    assert_eq!(read_shard(&path).expect("read").digest.rows(), 0);
}

#[test]
fn damage_is_never_read_as_a_value() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    let expected = write(&path, 300);
    let whole = fs::read(&path).expect("read");
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).expect("write");
        match read_shard(&path) {
            Ok(table) => assert_eq!(table.digest, expected, "byte {at}"),
            Err(error) => assert_eq!(error.exit(), Exit::Data, "byte {at}: {error}"),
        }
    }
    for end in (0..whole.len()).step_by(64) {
        fs::write(&path, &whole[..end]).expect("write");
        let error = read_shard(&path).expect_err("cut");
        assert_eq!(error.exit(), Exit::Data, "cut at {end}: {error}");
    }
}

/// Packs rows in tens, the last row of each ten first.
fn backwards_in_tens(rows: u32) -> impl Iterator<Item = Vec<u32>> {
    (0..rows)
        .step_by(10)
        .map(move |first| (first..rows.min(first + 10)).rev().collect())
}

#[test]
fn a_shard_in_pieces_gives_the_lengths_and_batches_of_the_whole() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    write(&path, 5000);
    let whole = read_shard(&path).expect("read");
    let mut pieces = ShardReader::open(&path).expect("open");
    let mut lengths = Vec::new();
    pieces
        .lengths(|ordinal, length, residues| lengths.push((ordinal, length, residues as usize)))
        .expect("lengths");
    let rows = whole.rows();
    let expected = rows
        .iter()
        .map(|row| (row.key.ordinal, row.key.length, row.sequence.len()));
    assert!(lengths.into_iter().eq(expected));
    let labels = Labels {
        description: true,
        ..Labels::default()
    };
    for batch in backwards_in_tens(5000) {
        let expected = whole.pack(batch.iter().map(|&row| rows.get(row as usize)), labels);
        let packed = pieces.pack(&batch, labels).expect("pack");
        assert_eq!(packed, expected.expect("pack"));
        assert!(pieces.held_rows() <= 2 * 1024, "{}", pieces.held_rows());
    }
    assert_eq!(pieces.digest(), whole.digest);
}

#[test]
fn a_shard_that_changes_after_its_lengths_were_read_is_an_error() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    write(&path, 3000);
    let mut shard = ShardReader::open(&path).expect("open");
    shard.lengths(|_, _, _| {}).expect("lengths");
    let mut changed = fs::read(&path).expect("read");
    // Not among the last segments, which are still in memory.
    let early = changed.len() / 4;
    changed[early] ^= 1;
    // In place, as a copy over it would: the file stays the same to those who have it open.
    fs::write(&path, &changed).expect("write");
    let mut batches = backwards_in_tens(3000);
    let error = batches.find_map(|batch| shard.pack(&batch, Labels::default()).err());
    assert_eq!(error.expect("a changed byte").exit(), Exit::Data);
}
