//! Lists of records that are in no shard because another row holds their vectors: `aliases.parquet` and `known.parquet`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Int64Builder, StringBuilder, UInt32Builder};
use plmkit_contract::{AliasRow, KeyColumnsBuilder, Kind, RowKey};

use crate::record_list::{ListRows, RecordListWriter};

/// Writes a list of [`Kind::Aliases`] or [`Kind::Known`].
pub type AliasesWriter = RecordListWriter<AliasRows>;

/// The rows of a list of aliases or known records.
#[derive(Default)]
pub struct AliasRows {
    keys: KeyColumnsBuilder,
    descriptions: StringBuilder,
    datasets: UInt32Builder,
    representatives: Int64Builder,
}

impl ListRows for AliasRows {
    type Row<'a> = &'a AliasRow<'a>;

    fn push(&mut self, row: &AliasRow<'_>) -> usize {
        self.keys.push(&RowKey {
            ordinal: row.ordinal,
            id: row.id,
            start: 0,
            length: row.length,
            truncated: row.truncated,
            digest: row.digest,
            n_windows: 1,
        });
        self.descriptions.append_option(row.description);
        self.datasets.append_option(row.dataset);
        let representative = row.representative.cast_signed();
        self.representatives.append_value(representative);
        row.id.len() + row.description.map_or(0, str::len)
    }

    fn columns(mut self, kind: Kind) -> Vec<ArrayRef> {
        let [ordinal, id, _, length, truncated, digest] = self.keys.finish();
        let description = Arc::new(self.descriptions.finish());
        let mut columns = vec![ordinal, id, description, length, truncated, digest];
        if kind == Kind::Known {
            columns.push(Arc::new(self.datasets.finish()));
        }
        columns.push(Arc::new(self.representatives.finish()));
        columns
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use arrow_array::RecordBatch;
    use parquet::file::metadata::ParquetMetaDataReader;
    use plmkit_contract::{AliasColumns, Exit, Failure, Provenance, RowDigest, SequenceDigest};

    use super::*;
    use crate::record_list::ROWS;
    use crate::{FileSummary, RecordListReader, StoreError};

    fn rows<'a>(count: u64, dataset: Option<u32>) -> Vec<AliasRow<'a>> {
        let row = |ordinal| AliasRow {
            ordinal,
            id: "P1",
            description: (ordinal % 2 == 0).then_some("a protein"),
            length: 3,
            truncated: ordinal % 3 == 0,
            digest: SequenceDigest::new(b"MKV"),
            dataset,
            representative: ordinal / 2,
        };
        (0..count).map(row).collect()
    }

    fn write(folder: &Path, kind: Kind, rows: &[AliasRow<'_>]) -> (PathBuf, FileSummary) {
        let path = folder.join(format!("{kind}.parquet"));
        let mut writer = AliasesWriter::create(&path, kind).expect("create");
        for row in rows {
            writer.push(row).expect("push");
        }
        let provenance = Provenance::new("fasta-shard", Vec::new()).with("dedup", true);
        let finished = writer.finish(&provenance).expect("finish");
        let summary = *finished.summary();
        finished.publish().expect("publish");
        (path, summary)
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
                let (path, summary) = write(folder.path(), kind, &rows);
                let (batches, digest) = read(&path, kind).expect("read");
                let columns: Vec<_> = batches.iter().map(AliasColumns::new).collect();
                let found = columns.iter().flat_map(AliasColumns::rows);
                assert!(found.eq(rows), "{kind}: {count}");
                assert_eq!((digest, digest.rows()), (summary.digest, count));
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
        let (path, summary) = write(folder.path(), Kind::Known, &rows(300, Some(0)));
        let whole = fs::read(&path).expect("read");
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).expect("write");
            match read(&path, Kind::Known) {
                Ok((_, digest)) => assert_eq!(digest, summary.digest, "byte {at}"),
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
}
