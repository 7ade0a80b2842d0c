//! What stands behind the row groups of an embeddings file: the page index, the checksums and the footer.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::errors::Result;
use parquet::file::metadata::page_index::PageIndexBuilder;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::writer::TrackedWrite;
use plmkit_contract::{Kind, Provenance, RowDigest};

use crate::checksums::{Checksums, Format};
use crate::row_group::{PlacedRowGroup, RowGroupEncoder};

/// Row groups one after the other, as a footer lists them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowGroups {
    placed: Vec<PlacedRowGroup>,
}

impl RowGroups {
    pub(crate) fn all(&self) -> &[PlacedRowGroup] {
        &self.placed
    }

    /// Where the next one begins.
    pub(crate) fn end(&self) -> u64 {
        self.placed
            .last()
            .map_or(Format::Parquet.magic().len() as u64, PlacedRowGroup::end)
    }

    /// Adds one that begins there.
    pub(crate) fn push(&mut self, group: PlacedRowGroup) {
        debug_assert_eq!(group.start, self.end());
        self.placed.push(group);
    }

    /// Forgets all but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.placed.truncate(count);
    }

    /// The digest of all rows.
    pub(crate) fn rows(&self) -> RowDigest {
        self.placed.iter().map(|group| group.rows).sum()
    }

    /// The bytes that make a file of them: page index, checksums and footer.
    pub(crate) fn footer(
        &self,
        encoder: &RowGroupEncoder,
        provenance: &Provenance,
    ) -> Result<Vec<u8>> {
        let schema = encoder.schema();
        let mut entries = vec![KeyValue::new(
            ARROW_SCHEMA_META_KEY.to_owned(),
            encode_arrow_schema(schema),
        )];
        let about = provenance.entries(Kind::Embeddings, self.rows());
        entries.extend(
            about
                .into_iter()
                .map(|(key, value)| KeyValue::new(key, value)),
        );
        let columns = schema.fields().len();
        let mut index = PageIndexBuilder::new(self.placed.len(), columns);
        let mut groups: Vec<RowGroupMetaData> = Vec::new();
        for (number, (ordinal, group)) in (0..).zip(&self.placed).enumerate() {
            let described = &group.described;
            let indexes = described
                .column_indexes
                .iter()
                .zip(&described.offset_indexes);
            for (column, (values, pages)) in indexes.enumerate() {
                if let Some(values) = values {
                    index.put_column_index(values.clone(), number, column);
                }
                if let Some(pages) = pages {
                    index.put_offset_index(pages.clone(), number, column);
                }
            }
            let numbered = described.group.clone().into_builder();
            groups.push(numbered.set_ordinal(ordinal).build()?);
        }
        let properties = encoder.properties();
        let about = FileMetaData::new(
            properties.writer_version().as_num(),
            self.rows().rows().cast_signed(),
            Some(properties.created_by().to_owned()),
            Some(entries),
            Arc::clone(encoder.descriptor()),
            None,
        );
        let metadata = ParquetMetaData::new(about, groups);
        let index = Arc::new(index.build());
        let metadata = metadata.into_builder().set_page_index(Some(index)).build();
        let mut bytes = Vec::new();
        let mut tracked = TrackedWrite::new(Behind {
            left: self.end(),
            bytes: &mut bytes,
        });
        skip(&mut tracked, self.end())?;
        let writer = ParquetMetaDataWriter::new_with_tracked(tracked, &metadata);
        writer.with_preserve_page_index_locations(false).finish()?;
        let mut sums = Checksums::default();
        sums.update(Format::Parquet.magic());
        for group in &self.placed {
            sums.extend(&group.segments);
        }
        Ok(sums.seal(Format::Parquet, &bytes))
    }
}

/// Keeps what is written behind the first `left` bytes: places in the footer count from the beginning of the file.
struct Behind<'a> {
    left: u64,
    bytes: &'a mut Vec<u8>,
}

impl Write for Behind<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.left.min(bytes.len() as u64);
        self.left -= before;
        self.bytes.extend_from_slice(&bytes[before as usize..]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes so many zeros, in steps that no buffer copies.
fn skip(to: &mut impl Write, bytes: u64) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let step = left.min(ZEROS.len() as u64);
        to.write_all(&ZEROS[..step as usize])?;
        left -= step;
    }
    Ok(())
}
