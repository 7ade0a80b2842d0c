use std::fs;

use plmkit_contract::{Exit, Failure, RowKey, SequenceDigest};

use super::*;

fn write(path: &Path, rows: usize) -> FileSummary {
    let mut writer = ShardWriter::create(path, 1 << 14).expect("create");
    let sequence = "MKVLA".repeat(40);
    for ordinal in 0..rows {
        let id = format!("p{ordinal}");
        let sequence = &sequence[..=ordinal % 150];
        let key = RowKey {
            ordinal: ordinal as u64,
            id: &id,
            start: 0,
            length: sequence.len() as u32,
            truncated: false,
            digest: SequenceDigest::new(sequence.as_bytes()),
            n_windows: 1,
        };
        let row = ShardRow {
            key,
            description: (ordinal % 3 == 0).then_some("a protein"),
            sequence,
        };
        writer.push(&row).expect("push");
    }
    let provenance = Provenance::new("fasta-shard", vec![]).with("max_residues", 1022);
    let finished = writer.finish(&provenance).expect("finish");
    let summary = *finished.summary();
    finished.publish().expect("publish");
    summary
}

#[test]
fn rows_come_back() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    let summary = write(&path, 5000);
    assert_eq!(summary.bytes, fs::metadata(&path).expect("metadata").len());
    let table = read_shard(&path).expect("read");
    assert_eq!(table.digest, summary.digest);
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
    let expected = write(&path, 300).digest;
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
