//! Random access to an embeddings file: by row group, by row and by id.

use std::ops::Range;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use plmkit_contract::{EmbeddingLayout, KEY_COLUMNS, Kind, SequenceDigest, ordinals};

use crate::StoreError;
use crate::parquet::ParquetFile;
use crate::row_group::indexed_metadata;

/// The column of ids: the second of the key.
const ID: usize = 1;
/// The column of sequence digests: the last of the key.
const DIGEST: usize = KEY_COLUMNS.len() - 1;

/// An embeddings file whose rows are read in any order. Only the bytes of the asked rows are read, and each is verified.
///
/// Row groups are found by their range of ordinals and by the bloom filter of their ids, rows in them by the page index.
pub type EmbeddingsFile = ParquetFile<EmbeddingLayout>;

/// What the footer says of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// The number of rows.
    pub rows: usize,
    /// The smallest and the largest ordinal.
    pub ordinals: (u64, u64),
    /// The bytes of its decoded columns.
    pub bytes: u64,
}

impl EmbeddingsFile {
    /// Opens a file and checks its columns and its provenance.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = Self::parse(path, Kind::Embeddings, EmbeddingLayout::from_schema);
        opened.map_err(|error| error.of_input(Kind::Embeddings))
    }

    /// Summarises the row groups, in the order of the file.
    pub fn groups(&self) -> Result<Vec<GroupSummary>, StoreError> {
        let groups = self.metadata.metadata().row_groups().iter();
        groups
            .map(|group| {
                let ordinals = group.column(0).statistics().and_then(|statistics| {
                    let Statistics::Int64(values) = statistics else {
                        return None;
                    };
                    let bounds = [values.min_opt(), values.max_opt()];
                    let [min, max] = bounds.map(|bound| u64::try_from(*bound?).ok());
                    Some((min?, max?))
                });
                Ok(GroupSummary {
                    rows: group.num_rows().cast_unsigned() as usize,
                    ordinals: ordinals
                        .ok_or_else(|| self.malformed("a row group without a range of ordinals"))?,
                    bytes: group.total_byte_size().cast_unsigned(),
                })
            })
            .collect()
    }

    /// Returns the rows of a row group at which a page of the largest column begins, from the second page on. Reads that end there
    /// decode no page twice.
    pub fn page_starts(&self, group: usize) -> Result<Vec<usize>, StoreError> {
        let metadata = self.indexed()?.metadata();
        let sizes = metadata.row_group(group).columns().iter();
        let sizes = sizes.map(ColumnChunkMetaData::uncompressed_size);
        let largest = sizes.enumerate().max_by_key(|&(_, size)| size);
        let index = metadata.page_index_for_row_group(group);
        let pages = largest.and_then(|(column, _)| index.page_locations(column));
        let starts = pages.into_iter().flatten().skip(1);
        Ok(starts
            .map(|page| page.first_row_index.cast_unsigned() as usize)
            .collect())
    }

    /// Reads the rows of a row group in `ranges`, which are in order. `columns` are places in [`schema`](ParquetFile::schema); the batch has them
    /// in the order of the file.
    pub fn read(
        &self,
        group: usize,
        ranges: &[Range<usize>],
        columns: impl IntoIterator<Item = usize>,
    ) -> Result<RecordBatch, StoreError> {
        let broken = |error: ParquetError| self.file.decoding_error(&error);
        let metadata = self.indexed()?;
        let rows = metadata.metadata().row_group(group).num_rows();
        let selected: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let ranges = ranges.iter().cloned();
        let selection = RowSelection::from_consecutive_ranges(ranges, rows as usize);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), columns);
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), metadata.clone());
        let mut reader = builder
            .with_row_groups(vec![group])
            .with_row_selection(selection)
            .with_projection(mask)
            .with_batch_size(selected.max(1))
            .build()
            .map_err(broken)?;
        let batch = reader.next().transpose();
        let batch = batch.map_err(|error| self.file.decoding_error(&error))?;
        let batch = batch
            .filter(|batch| batch.num_rows() == selected)
            .ok_or_else(|| self.malformed("a row group has fewer rows than its metadata say"))?;
        self.check_samples(&batch)?;
        Ok(batch)
    }

    /// Whether a row group may have rows of one of `ids`: its bloom filter has 2 % false positives, and no false negatives.
    pub fn may_have<'i>(
        &self,
        group: usize,
        mut ids: impl Iterator<Item = &'i str>,
    ) -> Result<bool, StoreError> {
        let column = self.metadata.metadata().row_group(group).column(ID);
        let filter = Sbbf::read_from_column_chunk(column, &self.file);
        let filter = filter.map_err(|error| self.file.decoding_error(&error))?;
        Ok(filter.is_none_or(|filter| ids.any(|id| filter.check(id))))
    }

    /// Returns the rows of a row group whose id `is_asked`.
    pub fn rows_with(
        &self,
        group: usize,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Vec<usize>, StoreError> {
        debug_assert_eq!(KEY_COLUMNS[ID], "id");
        let rows = self.metadata.metadata().row_group(group).num_rows() as usize;
        let batch = self.read(group, slice::from_ref(&(0..rows)), [ID])?;
        let ids = batch.column(0).as_string::<i32>();
        let found = ids
            .iter()
            .enumerate()
            .filter(|(_, id)| id.is_some_and(&is_asked));
        Ok(found.map(|(row, _)| row).collect())
    }

    /// Reads the ordinals and digests of the rows of a row group. Bytes of other columns are neither read nor verified.
    pub fn keys(&self, group: usize) -> Result<Vec<(u64, SequenceDigest)>, StoreError> {
        let rows = self.metadata.metadata().row_group(group).num_rows() as usize;
        let batch = self.read(group, slice::from_ref(&(0..rows)), [0, DIGEST])?;
        let digests = batch["sequence_digest"].as_string::<i32>().iter();
        // A verified file holds no other text.
        let digests = digests.map(|text| text.unwrap_or_default().parse().unwrap_or_default());
        Ok(ordinals(&batch).iter().copied().zip(digests).collect())
    }

    /// The metadata with the page index.
    fn indexed(&self) -> Result<&ArrowReaderMetadata, StoreError> {
        if let Some(indexed) = self.indexed.get() {
            return Ok(indexed);
        }
        let indexed = indexed_metadata().parse_and_finish(&self.file);
        let indexed = indexed.and_then(|metadata| {
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        });
        let indexed = indexed.map_err(|error| self.file.decoding_error(&error))?;
        Ok(self.indexed.get_or_init(|| indexed))
    }

    fn malformed(&self, what: &str) -> StoreError {
        StoreError::malformed(self.path(), what)
    }
}
