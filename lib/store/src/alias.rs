//! Lists of records that are in no shard because another row holds their vectors: `aliases.parquet` and `known.parquet`.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, StringBuilder, UInt32Builder};
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use plmkit_contract::{
    AliasRow, DATASET, DESCRIPTION, KeyColumnsBuilder, Kind, Provenance, REPRESENTATIVE, RowKey,
    aliases_schema, known_schema,
};

use crate::parquet::{ParquetFile, ParquetReader, properties};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::RowGroupEncoder;
use crate::{FileSummary, Finished, StoreError};

/// The most rows of a row group.
const ROWS: usize = 1 << 16;
/// A row group ends with the row in which its ids and descriptions reach this many bytes.
const HEADER_BYTES: usize = 1 << 26;

/// Writes a list of [`Kind::Aliases`] or [`Kind::Known`]. Its bytes depend only on its rows.
pub struct AliasesWriter {
    writer: ParquetWriter,
    rows: RowsBuilder,
}

impl AliasesWriter {
    /// Starts a list that will be at `path`, of known records if `kind` is [`Kind::Known`], or of aliases.
    pub fn create(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        let schema = match kind {
            Kind::Known => known_schema(),
            _ => aliases_schema(),
        };
        let encoder = RowGroupEncoder::new(path, kind, schema, aliases_properties())?;
        Ok(Self {
            writer: ParquetWriter::create(path, Arc::new(encoder))?,
            rows: RowsBuilder::default(),
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: &AliasRow<'_>) -> Result<(), StoreError> {
        self.rows.push(row);
        if self.rows.len == ROWS || self.rows.header_bytes >= HEADER_BYTES {
            self.end_row_group()?;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), StoreError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.len == 0 {
            return Ok(());
        }
        let batch = rows.batch(&self.writer.encoder);
        let batch = batch.map_err(|error| self.writer.encoding(error))?;
        self.writer.push(&[batch])
    }

    /// Writes the remaining rows and the footer.
    pub fn finish(mut self, provenance: &Provenance) -> Result<Finished<FileSummary>, StoreError> {
        self.end_row_group()?;
        self.writer.finish(provenance)
    }
}

/// The columns of the rows of a row group.
#[derive(Default)]
struct RowsBuilder {
    keys: KeyColumnsBuilder,
    descriptions: StringBuilder,
    datasets: UInt32Builder,
    representatives: Int64Builder,
    len: usize,
    header_bytes: usize,
}

impl RowsBuilder {
    fn push(&mut self, row: &AliasRow<'_>) {
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
        self.len += 1;
        self.header_bytes += row.id.len() + row.description.map_or(0, str::len);
    }

    fn batch(mut self, encoder: &RowGroupEncoder) -> Result<RecordBatch, ParquetError> {
        let [ordinal, id, _, length, truncated, digest] = self.keys.finish();
        let description = Arc::new(self.descriptions.finish());
        let mut columns = vec![ordinal, id, description, length, truncated, digest];
        if encoder.kind() == Kind::Known {
            columns.push(Arc::new(self.datasets.finish()));
        }
        columns.push(Arc::new(self.representatives.finish()));
        Ok(RecordBatch::try_new(Arc::clone(encoder.schema()), columns)?)
    }
}

fn aliases_properties() -> WriterProperties {
    let encodings = [
        ("ordinal", Encoding::DELTA_BINARY_PACKED),
        ("id", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        (DESCRIPTION, Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("length", Encoding::DELTA_BINARY_PACKED),
        (DATASET, Encoding::DELTA_BINARY_PACKED),
        (REPRESENTATIVE, Encoding::DELTA_BINARY_PACKED),
    ];
    properties(&encodings, &[DESCRIPTION, "sequence_digest"]).build()
}

/// Reads a list; [`AliasColumns`](plmkit_contract::AliasColumns) has the rows of a batch.
pub type AliasesReader = ParquetReader<()>;

impl AliasesReader {
    /// Opens a list of this kind, and checks its columns and its provenance.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        Self::new(ParquetFile::of_kind(path, kind)?, None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use parquet::file::metadata::ParquetMetaDataReader;
    use plmkit_contract::{AliasColumns, Exit, Failure, RowDigest, SequenceDigest};

    use super::*;

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
        let mut reader = AliasesReader::open(path, kind)?;
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
        assert!(error.to_string().contains("found kind 'known'"), "{error}");
    }
}
