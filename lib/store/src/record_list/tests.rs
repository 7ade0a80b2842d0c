use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use parquet::file::metadata::ParquetMetaDataReader;
use plmkit_contract::{
    AliasRow, PeptideRow, Provenance, RowDigest, RowKey, SequenceDigest, alias_rows, peptide_rows,
};
use plmkit_kit::{Exit, Failure};

use super::*;
use crate::StoreError;

fn rows<'a>(count: u64, dataset: Option<u32>) -> Vec<AliasRow<'a>> {
    let row = |ordinal| AliasRow {
        key: RowKey {
            ordinal,
            id: "P1",
            start: 0,
            length: 3,
            truncated: ordinal % 3 == 0,
            digest: SequenceDigest::new(b"MKV"),
            n_windows: 1,
        },
        description: (ordinal % 2 == 0).then_some("a protein"),
        dataset,
        representative: ordinal / 2,
    };
    (0..count).map(row).collect()
}

fn write(folder: &Path, kind: Kind, rows: &[AliasRow<'_>]) -> (PathBuf, RowDigest) {
    let path = folder.join(format!("{kind}.parquet"));
    let mut writer = RecordListWriter::create(&path, kind).expect("create");
    for row in rows {
        writer.push(row).expect("push");
    }
    let provenance = Provenance::new("fasta-shard", Vec::new()).with("dedup", true);
    let (digest, file) = writer.finish(&provenance).expect("finish");
    file.finish().expect("publish");
    (path, digest)
}

fn read(path: &Path, kind: Kind) -> Result<(Vec<RecordBatch>, RowDigest), StoreError> {
    let mut reader = RecordListReader::open(path, kind)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    Ok((batches, reader.digest()))
}

#[test]
fn rows_come_back() {
    let folder = tempfile::tempdir().expect("temp folder");
    for (kind, dataset) in [(Kind::Aliases, None), (Kind::Known, Some(1))] {
        for count in [0, 5, ROWS as u64 + 3] {
            let rows = rows(count, dataset);
            let (path, written) = write(folder.path(), kind, &rows);
            let (batches, digest) = read(&path, kind).expect("read");
            let found = batches.iter().flat_map(alias_rows);
            assert!(found.eq(rows), "{kind}: {count}");
            assert_eq!((digest, digest.rows()), (written, count));
        }
    }
}

#[test]
fn a_row_group_ends_before_its_descriptions_fill_a_column() {
    let folder = tempfile::tempdir().expect("temp folder");
    let long = "x".repeat(1 << 20);
    let mut rows = rows(65, None);
    for row in &mut rows {
        row.description = Some(&long);
    }
    let (path, _) = write(folder.path(), Kind::Aliases, &rows);
    let file = fs::File::open(path).expect("open");
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file);
    assert_eq!(metadata.expect("metadata").num_row_groups(), 2);
}

#[test]
fn damage_is_never_read_as_a_value() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (path, written) = write(folder.path(), Kind::Known, &rows(300, Some(0)));
    let whole = fs::read(&path).expect("read");
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).expect("write");
        match read(&path, Kind::Known) {
            Ok((_, digest)) => assert_eq!(digest, written, "byte {at}"),
            Err(error) => assert_eq!(error.exit(), Exit::Data, "byte {at}: {error}"),
        }
    }
    fs::write(&path, &whole).expect("write");
    let error = read(&path, Kind::Aliases).expect_err("another kind");
    assert!(
        error.to_string().contains("found a list of known records"),
        "{error}"
    );
}

#[test]
fn peptides_come_back() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("peptides.parquet");
    let rows: Vec<_> = (0..70_000)
        .map(|at| PeptideRow {
            ordinal: 3 * at,
            contig: ["k141_7", "NODE|1,x=\"\""][at as usize % 2],
            start: u32::MAX - 3 * at as u32,
            end: u32::MAX - 2,
            frame: [1, 2, 3, -1, -2, -3][at as usize % 6],
        })
        .collect();
    let mut writer = RecordListWriter::create(&path, Kind::Peptides).expect("create");
    for row in &rows {
        writer.push(row).expect("push");
    }
    let finished = writer.finish(&Provenance::new("fasta-shard", Vec::new()));
    finished.expect("finish").1.finish().expect("publish");
    let mut reader = RecordListReader::open(&path, Kind::Peptides).expect("open");
    let mut found = 0;
    while let Some(batch) = reader.next_batch().expect("read") {
        for row in peptide_rows(&batch) {
            assert_eq!(row, rows[found]);
            found += 1;
        }
    }
    assert_eq!(found, rows.len());
}
