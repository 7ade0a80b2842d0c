use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, ListArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use plmkit_contract::{RowKey, RowsBuilder, SequenceDigest, StoreDtype};

use super::*;
use crate::{EmbeddingsReader, EmbeddingsWriter};

const DIM: usize = 4;
const THREADS: NonZero<usize> = NonZero::new(3).unwrap();

fn layout() -> EmbeddingLayout {
    let columns = ["mean_6", "residues_6", "logits", "contacts"];
    EmbeddingLayout {
        columns: columns.map(|name| name.parse().expect("a column")).to_vec(),
        dim: DIM,
        logits: plmkit_contract::VOCABULARY,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: plmkit_contract::Labels::default(),
    }
}

fn vectors(dim: usize, count: usize, first: f32) -> ArrayRef {
    let values = (0..dim * count).map(|at| first + at as f32 / 7.0);
    Arc::new(FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Float32, false)),
        i32::try_from(dim).expect("few"),
        Arc::new(Float32Array::from_iter_values(values)),
        None,
    ))
}

fn lists(items: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let item = Field::new_list_field(items.data_type().clone(), false);
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    Arc::new(ListArray::new(Arc::new(item), offsets, items, None))
}

/// Makes rows for proteins of these lengths, which may be 0.
fn rows(ordinal: u64, lengths: &[usize]) -> RecordBatch {
    let (count, residues) = (lengths.len(), lengths.iter().sum());
    let squares: Vec<usize> = lengths.iter().map(|length| length * length).collect();
    let pairs = (0..squares.iter().sum::<usize>()).map(|at| at as f32 / 3.0);
    let mut keys = RowsBuilder::of_keys();
    for (ordinal, &length) in (ordinal..).zip(lengths) {
        keys.push(&RowKey {
            ordinal,
            id: &format!("p{ordinal}"),
            start: 0,
            length: length as u32,
            truncated: false,
            digest: SequenceDigest::default(),
            n_windows: 1,
        });
    }
    let mut columns = keys.finish();
    columns.extend([
        vectors(DIM, count, ordinal as f32),
        lists(vectors(DIM, residues, -1.0), lengths),
        lists(vectors(33, residues, 2.0), lengths),
        lists(Arc::new(Float32Array::from_iter_values(pairs)), &squares),
    ]);
    RecordBatch::try_new(layout().schema(), columns).expect("columns")
}

fn push(file: &mut UnfinishedEmbeddings, rows: &[RecordBatch]) {
    file.submit(rows.to_vec()).expect("a thread");
    file.wait_for_all().expect("written");
}

fn provenance() -> Provenance {
    Provenance::new("gpu-embed", Vec::new())
}

fn opened(path: &Path) -> UnfinishedEmbeddings {
    let opened = UnfinishedEmbeddings::open(path, path, &layout(), THREADS).expect("whole");
    let (file, found) = opened.expect("something on record");
    assert_eq!(found.options, provenance().options);
    file
}

fn publish(file: &UnfinishedEmbeddings, to: &Path) -> Vec<u8> {
    let claim = AtomicFile::create(to).expect("create");
    file.publish(&provenance(), claim).expect("publish");
    fs::read(to).expect("output")
}

/// Three row groups. The first has two batches, one of them a slice.
fn groups() -> [Vec<RecordBatch>; 3] {
    let first = rows(0, &[3, 0, 400, 2]);
    [
        vec![first.slice(1, 2), rows(10, &[1])],
        vec![rows(20, &[700, 30])],
        vec![rows(30, &[2, 2])],
    ]
}

#[test]
fn an_interrupted_file_becomes_the_same_as_an_uninterrupted_one() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("part.parquet");
    let [first, second, third] = groups();
    let begin = || UnfinishedEmbeddings::create(&path, &path, &layout(), THREADS).expect("create");
    let mut whole = begin();
    for rows in [&first, &second, &third] {
        push(&mut whole, rows);
    }
    let expected = publish(&whole, &folder.path().join("whole.parquet"));

    let mut file = begin();
    push(&mut file, &first);
    assert!(
        UnfinishedEmbeddings::open(&path, &path, &layout(), THREADS)
            .expect("read")
            .is_none()
    );
    file.write_footer(&provenance()).expect("footer");
    // Row groups after the footer are lost.
    push(&mut file, &third);
    let mut file = opened(&path);
    assert_eq!(file.row_groups(), 1);
    push(&mut file, &second);
    file.truncate(2, &provenance()).expect("close");
    let mut file = opened(&path);
    file.truncate(2, &provenance()).expect("cut");
    push(&mut file, &third);
    assert_eq!(file.verify(&Stop::default()).expect("read"), [true; 3]);
    let found = publish(&file, &folder.path().join("again.parquet"));
    assert!(found == expected);
    // A published file stays as it is.
    file.truncate(0, &provenance()).expect("nothing to do");
    assert!(fs::read(folder.path().join("again.parquet")).expect("output") == expected);
}

#[test]
fn all_rows_come_back() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("part.parquet");
    let mut file = UnfinishedEmbeddings::create(&path, &path, &layout(), THREADS).expect("create");
    for rows in groups() {
        push(&mut file, &rows);
    }
    let copy = folder.path().join("copy.parquet");
    file.copy(1..3, &copy, &provenance()).expect("copy");
    let output = folder.path().join("e.parquet");
    publish(&file, &output);
    let expected = groups().concat();
    let written = folder.path().join("written.parquet");
    let mut writer = EmbeddingsWriter::create(&written, &layout()).expect("create");
    for batch in &expected {
        writer.write(batch).expect("write");
    }
    writer.finish(&provenance()).expect("finish");
    for (path, expected) in [
        (&output, &expected[..]),
        (&copy, &expected[2..]),
        (&written, &expected),
    ] {
        let mut reader = EmbeddingsReader::open(path).expect("open");
        assert_eq!(reader.layout(), &layout());
        let mut read = Vec::new();
        while let Some(batch) = reader.next_batch().expect("read") {
            read.push(batch);
        }
        let [read, expected] = [&read, expected].map(|batches| {
            arrow_select::concat::concat_batches(&layout().schema(), batches).expect("columns")
        });
        assert_eq!(read, expected);
    }
}

#[test]
fn no_more_row_groups_are_encoded_at_once_than_the_run_has_threads() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("part.parquet");
    for (threads, expected) in [(1, 1), (2, 2), (64, MAX_ENCODERS)] {
        let threads = NonZero::new(threads).expect("not 0");
        let file = UnfinishedEmbeddings::create(&path, &path, &layout(), threads);
        let mut file = file.expect("create");
        assert_eq!(file.threads, expected);
        for rows in groups() {
            file.submit(rows).expect("a thread");
            assert!(file.encoders.len() <= expected);
        }
        file.wait_for_all().expect("written");
    }
}

#[test]
fn damage_is_located() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("part.parquet");
    let mut file = UnfinishedEmbeddings::create(&path, &path, &layout(), THREADS).expect("create");
    for ordinal in 0..3 {
        push(&mut file, &[rows(10 * ordinal, &[2, 3])]);
    }
    file.write_footer(&provenance()).expect("footer");
    let footer = UnfinishedEmbeddings::footer_file(&path);
    let whole = fs::read(&footer).expect("footer");
    for place in (0..whole.len()).step_by(31) {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&footer, damaged).expect("write");
        let opened = UnfinishedEmbeddings::open(&path, &path, &layout(), THREADS);
        assert!(!matches!(opened, Ok(Some(_))), "the footer, byte {place}");
    }
    fs::write(&footer, whole).expect("write");
    let whole = fs::read(&path).expect("file");
    let ends: Vec<u64> = file.groups.0.iter().map(PlacedRowGroup::end).collect();
    for place in (4..whole.len()).step_by(31) {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, damaged).expect("write");
        let opened = UnfinishedEmbeddings::open(&path, &path, &layout(), THREADS);
        let (file, _) = opened.expect("whole").expect("a footer");
        let intact = file.verify(&Stop::default()).expect("read");
        let hit = ends.partition_point(|&end| end <= place as u64);
        assert_eq!(intact, [0, 1, 2].map(|group| group != hit), "byte {place}");
    }
}
