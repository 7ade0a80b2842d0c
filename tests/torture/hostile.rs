//! Data files that claim too much: refused at once, within 1 GiB of memory.

use std::cmp::Ordering;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow::ipc::{Block, root_as_footer};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as PageCompression, ZstdLevel};
use parquet::file::metadata::{
    ColumnChunkMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::properties::WriterProperties;
use plmkit_contract::{Kind, Provenance, RowDigest, shard_schema};

use crate::common::{bin, test_data, with_memory};
use crate::files::Files;
use crate::limited::{PATIENCE, run_for};

const GIB: u64 = 1 << 10;

/// What `gpu-embed` needs of address space, in MiB, to embed the test proteins at all: libtorch alone maps 400.
pub(crate) const LIBTORCH: u64 = 600;

/// The program refuses its input in time and within `mib` MiB.
pub(crate) fn refuses(name: &str, command: &Command, mib: u64) {
    let ended = run_for(&mut with_memory(command, mib), PATIENCE);
    println!(
        "{name:<44} {:>6.2} s  {}",
        ended.took.as_secs_f64(),
        ended.stderr.trim_end()
    );
    assert!(ended.refused(), "{name}: {ended:?}");
}

fn pack(shard: &Path, out: &Path) -> Command {
    let mut command = bin("pack-batches");
    command.arg(shard).arg("--out").arg(out);
    command
}

fn embed(batches: &Path, out: &Path) -> Command {
    let mut command = bin("gpu-embed");
    command
        .arg(batches)
        .arg("--model")
        .arg(test_data("model-tiny"))
        .args(["--device", "cpu", "--threads", "1", "--out"])
        .arg(out);
    command
}

/// What a footer says, and where it begins.
fn metadata(file: &[u8]) -> (ParquetMetaData, usize) {
    let end = file.len() - 8;
    let length = u32::from_le_bytes(file[end..end + 4].try_into().expect("4 bytes"));
    let start = end - length as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&file[start..end]).expect("a footer");
    (metadata, start)
}

/// A Parquet file with another footer.
fn with_footer(file: &[u8], change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
    let (metadata, start) = metadata(file);
    let mut bytes = file[..start].to_vec();
    let metadata = change(metadata);
    ParquetMetaDataWriter::new(&mut bytes, &metadata)
        .finish()
        .expect("a footer");
    bytes
}

/// The row group, and its columns if `all`, claim so many rows.
fn claiming_rows(file: &[u8], rows: i64, all: bool) -> Vec<u8> {
    with_footer(file, |metadata| {
        let group = metadata.row_groups()[0].clone();
        let columns = group.columns().iter().map(|column| {
            let count = if all { rows } else { column.num_values() };
            let column = column.clone().into_builder().set_num_values(count);
            column.build().expect("a column")
        });
        let columns = columns.collect();
        let group = group
            .into_builder()
            .set_num_rows(rows)
            .set_column_metadata(columns);
        metadata
            .into_builder()
            .set_row_groups(vec![group.build().expect("a row group")])
            .build()
    })
}

/// The second column lies where the first one does.
fn with_overlap(file: &[u8]) -> Vec<u8> {
    with_footer(file, |metadata| {
        let mut columns = metadata.row_group(0).columns().to_vec();
        let first = columns[0].data_page_offset();
        let second = columns[1]
            .clone()
            .into_builder()
            .set_data_page_offset(first);
        columns[1] = second.build().expect("a column");
        with_columns(&metadata, columns)
    })
}

/// The first page of the ids claims 2 GiB without compression. Its header begins `15 <kind> 15 <bytes>`, where the
/// bytes are a varint; what follows makes room for a longer one.
fn with_huge_page(file: &[u8]) -> Vec<u8> {
    const IDS: usize = 1;
    let claim = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let at = first_page(file, IDS) + 3;
    assert_eq!(file[at - 3..at], [0x15, 0, 0x15], "a page header");
    let old = varint(&file[at..]);
    let grown = i64::try_from(claim.len() - old).expect("a few bytes");
    let changed = with_footer(file, |metadata| {
        let columns = metadata
            .row_group(0)
            .columns()
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let (size, offset) = (column.compressed_size(), column.data_page_offset());
                let changed = column.clone().into_builder();
                let changed = match index.cmp(&IDS) {
                    Ordering::Less => changed,
                    Ordering::Equal => changed.set_total_compressed_size(size + grown),
                    Ordering::Greater => changed.set_data_page_offset(offset + grown),
                };
                changed.build().expect("a column")
            });
        with_columns(&metadata, columns.collect())
    });
    [&changed[..at], &claim, &changed[at + old..]].concat()
}

/// Bytes of the varint at the front of `bytes`.
fn varint(bytes: &[u8]) -> usize {
    1 + bytes.iter().take_while(|&&byte| byte >= 0x80).count()
}

/// Where a column begins.
fn first_page(file: &[u8], column: usize) -> usize {
    metadata(file)
        .0
        .row_group(0)
        .column(column)
        .data_page_offset() as usize
}

/// The same metadata with other columns in its one row group.
fn with_columns(metadata: &ParquetMetaData, columns: Vec<ColumnChunkMetaData>) -> ParquetMetaData {
    let group = metadata.row_group(0).clone().into_builder();
    let group = group.set_column_metadata(columns).build();
    let builder = metadata.clone().into_builder();
    builder
        .set_row_groups(vec![group.expect("a row group")])
        .build()
}

/// A sealed shard with one id of `bytes` bytes.
fn long_id(path: &Path, bytes: usize) {
    let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![0])),
        text(&"i".repeat(bytes)),
        text("a protein"),
        text("MKV"),
        Arc::new(UInt32Array::from(vec![3])),
        Arc::new(UInt32Array::from(vec![0])),
        Arc::new(BooleanArray::from(vec![false])),
        Arc::new(FixedSizeBinaryArray::new(16, vec![7_u8; 16].into(), None)),
    ];
    let batch = RecordBatch::try_new(shard_schema(), columns).expect("a row");
    let mut digest = RowDigest::default();
    digest.update(&batch).expect("a digest");
    let properties = WriterProperties::builder()
        .set_compression(PageCompression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .build();
    let file = fs::File::create(path).expect("create");
    let mut writer = ArrowWriter::try_new(file, shard_schema(), Some(properties)).expect("writer");
    writer.write(&batch).expect("write");
    let provenance = Provenance::new("fasta-shard", Vec::new());
    for (key, value) in provenance.seal(Kind::Shard, &shard_schema(), digest) {
        writer.append_key_value_metadata(KeyValue::new(key, value));
    }
    writer.close().expect("close");
}

/// What is done to a whole file.
type Damage = fn(&[u8]) -> Vec<u8>;

#[test]
#[ignore = "slow: make torture"]
fn parquet() {
    let files = Files::new();
    let out = files.path("out.arrow");
    let embeddings = files.embeddings("f32");
    let shard = fs::read(files.shard()).expect("read");
    let reference = fs::read(&embeddings).expect("read");
    let damages: [(&str, Damage); 5] = [
        ("a row group of 2^60 rows", |file| {
            claiming_rows(file, 1 << 60, false)
        }),
        ("columns of 2^60 rows", |file| {
            claiming_rows(file, 1 << 60, true)
        }),
        ("columns that overlap", with_overlap),
        ("a page header of 2 GiB", with_huge_page),
        ("a footer of 4 GiB", |file| {
            [&file[..file.len() - 8], &[0xff; 4], b"PAR1"].concat()
        }),
    ];
    for (name, damage) in damages {
        let hostile = files.write("hostile.parquet", &damage(&shard));
        refuses(name, &pack(&hostile, &out), GIB);
        let hostile = files.write("hostile.parquet", &damage(&reference));
        let mut validate = bin("validate-embeddings");
        validate.arg(&embeddings).arg("--reference").arg(&hostile);
        refuses(&format!("{name}, as a reference"), &validate, GIB);
    }
    for (name, bytes) in [("an id of 4 MiB", 4 << 20), ("an id of 1 GiB", 1 << 30)] {
        let shard = files.path("long.parquet");
        long_id(&shard, bytes);
        refuses(name, &pack(&shard, &out), GIB);
    }
}

/// Where `pattern` is first in `bytes`.
fn place(bytes: &[u8], pattern: &[u8]) -> usize {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
        .expect("the pattern is there")
}

#[test]
#[ignore = "slow: make torture"]
fn arrow_ipc() {
    let files = Files::new();
    let whole = fs::read(files.batches()).expect("read");
    let out = files.path("out.parquet");
    let pack = plmkit_store::BatchesFile::open(&files.batches(), &plmkit_contract::Stop::default())
        .expect("open")
        .batch(0)
        .expect("a pack");
    let offsets: Vec<u8> = pack
        .cu_seqlens()
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect();
    let cu_seqlens = place(&whole, &offsets);
    let changed = |at: usize, new: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let blocks = arrow_blocks(&whole);
    // A block is its offset, the length of its metadata and, after 16 bytes, that of its body.
    let second = place(&whole, &blocks[1].0);
    let last = offsets.len() - 4;
    for (name, bytes) in [
        ("record batches that overlap", changed(second, &blocks[0].0)),
        (
            "a record batch outside the file",
            changed(second, &(1_i64 << 40).to_le_bytes()),
        ),
        (
            "token offsets that fall",
            changed(cu_seqlens + 4, &1_000_000_i32.to_le_bytes()),
        ),
        (
            "token offsets that begin below 0",
            changed(cu_seqlens, &(-8_i32).to_le_bytes()),
        ),
        (
            "token offsets past the tokens",
            changed(cu_seqlens + last, &i32::MAX.to_le_bytes()),
        ),
        (
            "a body of 2^40 bytes",
            changed(second + 16, &(1_i64 << 40).to_le_bytes()),
        ),
        (
            "a footer of 2 GiB",
            [
                &whole[..whole.len() - 10],
                &[0xff, 0xff, 0xff, 0x7f],
                b"ARROW1",
            ]
            .concat(),
        ),
    ] {
        let hostile = files.write("hostile.arrow", &bytes);
        refuses(name, &embed(&hostile, &out), LIBTORCH + GIB);
    }
}

/// The blocks of the record batches, as they are in the footer.
fn arrow_blocks(file: &[u8]) -> Vec<Block> {
    let end = file.len() - 10;
    let length = u32::from_le_bytes(file[end..end + 4].try_into().expect("4 bytes"));
    let footer = root_as_footer(&file[end - length as usize..end]).expect("a footer");
    footer.recordBatches().iter().flatten().copied().collect()
}

/// About 10 GB: `head`, then `line` for ever, as members or frames that decompress to 10 MB each.
fn bomb(path: &Path, head: &[u8], line: &[u8], compress: impl Fn(&[u8]) -> Vec<u8>) {
    let mut file = fs::File::create(path).expect("create");
    file.write_all(&compress(head)).expect("write");
    let frame = compress(&line.repeat(10_000_000 / line.len()));
    file.write_all(&frame.repeat(1000)).expect("write");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
#[ignore = "slow: make torture"]
fn fasta_bombs() {
    let files = Files::new();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("memory");
    for (name, head, line) in [
        ("10 GB of one residue", &b">a\n"[..], &b"A"[..]),
        ("10 GB of short lines", b">a\n", b"MKVLA\n"),
        ("10 GB of blank lines", b"\n", b"\n"),
        ("10 GB of one header", b">", b"a"),
    ] {
        for format in ["gz", "zst"] {
            let path = files.path(&format!("bomb.{format}"));
            if format == "gz" {
                bomb(&path, head, line, gzip);
            } else {
                bomb(&path, head, line, zstd);
            }
            let mut command = bin("fasta-shard");
            command
                .arg(&path)
                .args(["--shards", "1", "--out-dir"])
                .arg(files.path("bombed"));
            refuses(&format!("{name}, {format}"), &command, GIB);
        }
    }
}
