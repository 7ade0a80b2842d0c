//! Writes the end of a shard or an embeddings file: the page index, the checksums and the footer.

use std::io::{self, Write};
use std::iter;
use std::path::Path;
use std::sync::Arc;

use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::page_index::PageIndexBuilder;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::writer::TrackedWrite;
use plmkit_contract::{Provenance, RowDigest};

use crate::StoreError;
use crate::checksums::{Checksums, Format};
use crate::row_group::{FIRST_ROW_GROUP, PlacedRowGroup, RowGroupEncoder};

/// The row groups of a file, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowGroups(pub(crate) Vec<PlacedRowGroup>);

impl RowGroups {
    /// Returns the offset of the next row group.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(FIRST_ROW_GROUP, PlacedRowGroup::end)
    }

    /// Adds a row group that starts at [`end`](Self::end).
    pub(crate) fn push(&mut self, group: PlacedRowGroup) {
        debug_assert_eq!(group.start, self.end());
        self.0.push(group);
    }

    /// Returns the digest of all rows.
    pub(crate) fn rows(&self) -> RowDigest {
        self.0.iter().map(|group| group.rows).sum()
    }

    /// Encodes the bytes that complete the file: page index, checksums and footer. Errors name `path`.
    pub(crate) fn footer(
        &self,
        encoder: &RowGroupEncoder,
        provenance: &Provenance,
        path: &Path,
    ) -> Result<Vec<u8>, StoreError> {
        let footer = self.encode(encoder, provenance);
        footer.map_err(|error| StoreError::encoding_parquet(path, error))
    }

    fn encode(&self, encoder: &RowGroupEncoder, provenance: &Provenance) -> ParquetResult<Vec<u8>> {
        let schema = &encoder.schema;
        let arrow = (
            ARROW_SCHEMA_META_KEY.to_owned(),
            encode_arrow_schema(schema),
        );
        let entries = provenance.entries(encoder.kind, self.rows());
        let entries = iter::once(arrow).chain(entries);
        let entries = entries.map(|(key, value)| KeyValue::new(key, value));
        let columns = schema.fields().len();
        let mut index = PageIndexBuilder::new(self.0.len(), columns);
        let mut groups: Vec<RowGroupMetaData> = Vec::new();
        for (number, (ordinal, group)) in (0..).zip(&self.0).enumerate() {
            let indexes = group.column_indexes.iter().zip(&group.offset_indexes);
            for (column, (values, pages)) in indexes.enumerate() {
                if let Some(values) = values {
                    index.put_column_index(values.clone(), number, column);
                }
                if let Some(pages) = pages {
                    index.put_offset_index(pages.clone(), number, column);
                }
            }
            let numbered = group.metadata.clone().into_builder();
            groups.push(numbered.set_ordinal(ordinal).build()?);
        }
        let properties = &encoder.properties;
        let file_metadata = FileMetaData::new(
            properties.writer_version().as_num(),
            self.rows().rows().cast_signed(),
            Some(properties.created_by().to_owned()),
            Some(entries.collect()),
            Arc::clone(&encoder.descriptor),
            None,
        );
        let metadata = ParquetMetaData::new(file_metadata, groups);
        let index = Arc::new(index.build());
        let metadata = metadata.into_builder().set_page_index(Some(index)).build();
        let mut bytes = Vec::new();
        // Offsets in the footer count from the start of the file.
        let mut tracked: TrackedWrite<Box<dyn Write + '_>> =
            TrackedWrite::new(Box::new(io::sink()));
        write_zeros(&mut tracked, self.end())?;
        tracked.flush()?;
        *tracked.inner_mut() = Box::new(&mut bytes);
        let writer = ParquetMetaDataWriter::new_with_tracked(tracked, &metadata);
        writer.with_preserve_page_index_locations(false).finish()?;
        let mut sums = Checksums::default();
        sums.update(Format::Parquet.magic());
        for group in &self.0 {
            sums.extend(&group.segments);
        }
        Ok(sums.seal(Format::Parquet, &bytes))
    }
}

/// Writes `bytes` zeros, in steps too large for buffers to copy.
fn write_zeros(to: &mut impl Write, bytes: u64) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let step = left.min(ZEROS.len() as u64);
        to.write_all(&ZEROS[..step as usize])?;
        left -= step;
    }
    Ok(())
}
