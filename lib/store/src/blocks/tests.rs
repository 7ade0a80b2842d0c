use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode,
    MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use flatbuffers::FlatBufferBuilder;
use plmkit_contract::{Exit, Failure, Provenance, Stop, batches_schema};

use super::*;
use crate::{BatchesFile, BatchesWriter, StoreError};

#[test]
fn blocks_follow_one_another() {
    let blocks = |offsets: [i64; 2]| {
        let blocks = offsets.map(|offset| Block::new(offset, 16, 100));
        ranges(&blocks, 500).map(|places| places.len())
    };
    assert_eq!(blocks([8, 124]), Ok(2));
    for offsets in [[8, 8], [8, 60], [8, 130], [124, 8], [-1, 115], [300, 416]] {
        assert!(blocks(offsets).is_err(), "{offsets:?}");
    }
    assert!(ranges(&[Block::new(0, 7, 100)], 500).is_err());
    assert!(ranges(&[Block::new(8, 16, i64::MAX)], 500).is_err());
}

#[test]
fn no_bytes_make_a_footer_of_nothing() {
    assert_eq!(footer(b"").unwrap_err(), "it has 0 bytes");
    let claim = [&[0xff, 0xff, 0xff, 0x7f][..], b"ARROW1"].concat();
    assert_eq!(
        footer(&claim).unwrap_err(),
        "it claims a footer of 2147483647 bytes"
    );
}
/// A size as Arrow IPC has it.
fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a small size")
}

/// What a starts column has as well: two buffers of one content.
const LENGTHS: [u32; 2] = [7, 9];

/// A batches file with one pack.
fn written(path: &Path) -> Vec<u8> {
    let tokens = ListArray::new(
        Arc::new(Field::new_list_field(DataType::UInt8, false)),
        OffsetBuffer::from_lengths([3, 4]),
        Arc::new(UInt8Array::from_iter_values(0..7)),
        None,
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values([0, 1])),
        Arc::new(StringArray::from_iter_values(["P1", "P2"])),
        Arc::new(UInt32Array::from_iter_values(LENGTHS)),
        Arc::new(UInt32Array::from_iter_values(LENGTHS)),
        Arc::new(BooleanArray::from(vec![false, true])),
        Arc::new(FixedSizeBinaryArray::new(16, vec![5_u8; 32].into(), None)),
        Arc::new(tokens),
    ];
    let batch = RecordBatch::try_new(batches_schema(), columns).expect("the columns of a pack");
    let provenance = Provenance::new("pack-batches", Vec::new());
    let mut writer = BatchesWriter::create(path, provenance).expect("create");
    writer.write(&batch).expect("write");
    writer.finish().expect("finish");
    std::fs::read(path).expect("read")
}

/// A record batch as a message describes it, and its body.
struct Described {
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    compressed: bool,
    body: Vec<u8>,
}

impl Described {
    /// The only record batch of `file`.
    fn of(file: &[u8], block: &Block) -> Self {
        let range = range(block).expect("a place");
        let (metadata, body) = file[range].split_at(block.metaDataLength() as usize);
        let message = root_as_message(&metadata[MESSAGE_HEAD..]).expect("a message");
        let batch = message.header_as_record_batch().expect("a record batch");
        Self {
            nodes: batch.nodes().iter().flatten().copied().collect(),
            buffers: batch.buffers().iter().flatten().copied().collect(),
            compressed: false,
            body: body.to_vec(),
        }
    }

    /// The bytes before the body.
    fn metadata(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(&self.buffers);
        let compression = self.compressed.then(|| {
            let mut compression = BodyCompressionBuilder::new(&mut builder);
            compression.add_codec(CompressionType::ZSTD);
            compression.add_method(BodyCompressionMethod::BUFFER);
            compression.finish()
        });
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(size(LENGTHS.len()));
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        if let Some(compression) = compression {
            batch.add_compression(compression);
        }
        let batch = batch.finish().as_union_value();
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_header(batch);
        message.add_bodyLength(size(self.body.len()));
        let message = message.finish();
        builder.finish(message, None);

        let mut message = builder.finished_data().to_vec();
        message.resize(message.len().next_multiple_of(8), 0);
        let length = message.len() as u32;
        [&[0xff; 4][..], &length.to_le_bytes(), &message].concat()
    }
}

/// The file with another record batch in the place of its only one.
fn with_batch(file: &[u8], change: impl FnOnce(&mut Described)) -> Vec<u8> {
    let (found, data) = footer(file).expect("a footer");
    let block = *found.recordBatches().expect("blocks").get(0);
    let mut batch = Described::of(file, &block);
    change(&mut batch);

    let metadata = batch.metadata();
    let moved = Block::new(
        block.offset(),
        metadata.len().try_into().expect("a short message"),
        size(batch.body.len()),
    );
    let mut end = file[data..].to_vec();
    let at = end
        .windows(block.0.len())
        .position(|bytes| bytes == block.0)
        .expect("the block is in the footer");
    end[at..at + moved.0.len()].copy_from_slice(&moved.0);
    let place = range(&block).expect("a place");
    let (before, after) = (&file[..place.start], &file[place.end..data]);
    [before, &metadata, &batch.body, after, &end].concat()
}

fn opened(path: &Path, file: &[u8]) -> Result<BatchesFile, StoreError> {
    std::fs::write(path, file).expect("write");
    BatchesFile::open(path, &Stop::default())
}

fn refused(path: &Path, file: &[u8], message: &str) {
    let error = opened(path, file).expect_err(message);
    assert_eq!(error.exit(), Exit::Data);
    let text = error.to_string();
    assert!(text.contains(message), "expected '{message}' in: {text}");
}

#[test]
fn a_body_that_claims_to_grow_is_not_unpacked() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a.arrow");
    let file = written(&path);
    let same = with_batch(&file, |_| {});
    assert_eq!(opened(&path, &same).expect("the same batch").len(), 1);

    let claiming = with_batch(&file, |batch| {
        batch.compressed = true;
        batch.body.clear();
        for buffer in &mut batch.buffers {
            let offset = size(batch.body.len());
            // A compressed buffer begins with the number of bytes that it grows to.
            batch.body.extend((1_i64 << 40).to_le_bytes());
            batch.body.extend([0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0]);
            *buffer = Buffer::new(offset, 16);
        }
    });
    refused(&path, &claiming, "record batch 0: it is compressed");
}

#[test]
fn buffers_do_not_share_bytes() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a.arrow");
    let file = written(&path);
    let lengths: Vec<u8> = LENGTHS.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut places = Vec::new();
    // The values are the ones that the digest expects: nothing but the places is wrong.
    let overlapping = with_batch(&file, |batch| {
        let holds = |buffer: &Buffer| {
            let start = buffer.offset() as usize;
            batch.body[start..].starts_with(&lengths) && buffer.length() == 8
        };
        places = (0..batch.buffers.len())
            .filter(|&index| holds(&batch.buffers[index]))
            .collect();
        batch.buffers[places[1]] = batch.buffers[places[0]];
    });
    assert_eq!(places.len(), 2, "starts and lengths");
    refused(
        &path,
        &overlapping,
        "record batch 0: a buffer has 8 bytes at ",
    );

    let beyond = with_batch(&file, |batch| {
        let last = batch.buffers.last_mut().expect("tokens");
        *last = Buffer::new(last.offset(), 1 << 40);
    });
    refused(&path, &beyond, "cannot be decoded: ");
    let before = with_batch(&file, |batch| {
        let last = batch.buffers.last_mut().expect("tokens");
        *last = Buffer::new(last.offset(), -8);
    });
    refused(&path, &before, "record batch 0: a buffer has -8 bytes at ");
}
