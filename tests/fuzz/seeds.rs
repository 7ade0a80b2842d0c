//! Writes what the fuzz targets start from: small files of every kind, `fuzz-seeds FOLDER`.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch, UInt8Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, SchemaRef};
use plmkit_contract::{
    Column, EmbeddingLayout, KEY_COLUMNS, Labels, Manifest, Pooling, Provenance, Reason, Reject,
    RowKey, Sealed, SequenceDigest, ShardRow, StoreDtype, VectorColumn, batches_schema, tokenize,
};
use plmkit_store::{BatchesWriter, EmbeddingsWriter, ListWriter, ShardWriter, read_shard};
use serde_json::{Map, Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PROTEINS: [(&str, &str); 4] = [
    ("P1", "MKVLAAGIVGLCAKAYE"),
    ("sp|P2|TWO", "M"),
    ("P3", "MACDEFGHIKLMNPQRSTVWYXBZUO"),
    ("P4", "MKTAYIAKQR"),
];

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("expected a folder")?);
    let seeds = |target: &str| -> Result<PathBuf> {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let data_files = seeds("data_file")?;
    let shard = shard(&data_files)?;
    batches(&data_files, &shard)?;
    embeddings(&data_files, &shard)?;
    fasta(&seeds("fasta")?)?;
    manifest(&seeds("manifest")?)?;
    rejects(&seeds("rejects")?)?;
    model(&seeds("config")?, &seeds("checkpoint")?)?;
    let smallest = concat!(env!("CARGO_MANIFEST_DIR"), "/test-data/smallest.bin");
    fs::copy(smallest, seeds("torch_file")?.join("smallest.bin"))?;
    logs(&seeds("events")?, &seeds("gpu_csv")?)
}

/// Writes a shard and returns its rows.
fn shard(folder: &Path) -> Result<RecordBatch> {
    let path = folder.join("shard.parquet");
    let mut writer = ShardWriter::create(&path, 1 << 16)?;
    for (ordinal, (id, sequence)) in (0..).zip(PROTEINS) {
        let key = RowKey {
            ordinal,
            id,
            start: 0,
            length: sequence.len() as u32,
            truncated: false,
            digest: SequenceDigest::new(sequence.as_bytes()),
            n_windows: 1,
        };
        writer.push(&ShardRow {
            key,
            description: (ordinal > 1).then_some("a protein"),
            sequence,
        })?;
    }
    writer
        .finish(&Provenance::new(
            "fasta-shard",
            vec!["blake3-128:00".into()],
        ))?
        .publish()?;
    Ok(read_shard(&path)?.batches.remove(0))
}

fn batches(folder: &Path, shard: &RecordBatch) -> Result<()> {
    for rows in [0, 2, 3] {
        let provenance = Provenance::new("pack-batches", Vec::new()).with("max_batch_tokens", 64);
        let mut writer = BatchesWriter::create(
            &folder.join(format!("{rows}.arrow")),
            Labels::default(),
            &provenance,
        )?;
        if rows > 0 {
            writer.write(&pack(&shard.slice(0, rows))?)?;
            writer.write(&pack(&shard.slice(rows, 4 - rows))?)?;
        }
        writer.finish()?;
    }
    Ok(())
}

fn pack(rows: &RecordBatch) -> Result<RecordBatch> {
    let (mut tokens, mut lengths) = (Vec::new(), Vec::new());
    for sequence in rows["sequence"].as_string::<i32>().iter().flatten() {
        let before = tokens.len();
        tokenize(sequence.as_bytes(), &mut tokens).map_err(|_| "not residues")?;
        lengths.push(tokens.len() - before);
    }
    let list = ListArray::new(
        Arc::new(Field::new_list_field(DataType::UInt8, false)),
        OffsetBuffer::from_lengths(lengths),
        Arc::new(UInt8Array::from(tokens)),
        None,
    );
    Ok(RecordBatch::try_new(
        batches_schema(Labels::default()),
        with_keys(rows, list),
    )?)
}

fn embeddings(folder: &Path, shard: &RecordBatch) -> Result<()> {
    let columns =
        [Pooling::Mean, Pooling::Bos].map(|pool| Column::Pooled(VectorColumn { pool, layer: 1 }));
    let layout = EmbeddingLayout {
        columns: columns[..1].to_vec(),
        dim: 4,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels::default(),
    };
    let schema = layout.schema();
    let values: Vec<f32> = (0..16_u8).map(|i| f32::from(i) / 7.0).collect();
    let DataType::FixedSizeList(item, dim) = schema.field(KEY_COLUMNS.len()).data_type() else {
        return Err("not a vector".into());
    };
    let vectors = FixedSizeListArray::new(
        Arc::clone(item),
        *dim,
        Arc::new(Float32Array::from(values)),
        None,
    );
    let rows = RecordBatch::try_new(SchemaRef::clone(&schema), with_keys(shard, vectors))?;
    let path = folder.join("embeddings.parquet");
    let mut writer = EmbeddingsWriter::create(&path, &layout)?;
    writer.write(&rows)?;
    writer.finish(&Provenance::new("gpu-embed", Vec::new()))?;
    // Half precision, numbers of windows and two columns, without rows.
    let path = folder.join("halves.parquet");
    let halves = EmbeddingLayout {
        columns: columns.to_vec(),
        dtype: StoreDtype::F16,
        stitched: true,
        labels: Labels::default(),
        ..layout
    };
    EmbeddingsWriter::create(&path, &halves)?.finish(&Provenance::new("gpu-embed", Vec::new()))?;
    Ok(())
}

fn with_keys(rows: &RecordBatch, last: impl arrow::array::Array + 'static) -> Vec<ArrayRef> {
    let keys = KEY_COLUMNS.iter().map(|name| Arc::clone(&rows[*name]));
    keys.chain([Arc::new(last) as ArrayRef]).collect()
}

fn fasta(folder: &Path) -> Result<()> {
    let mut text =
        b"\n>P1 a protein \xc3\xa9\r\nMKV*\r\n\r\n>P2\n>P3\tx y \nACDEFGHIKLMNPQRSTVWY\nmk-v"
            .to_vec();
    fs::write(folder.join("plain.fasta"), &text)?;
    fs::write(folder.join("a.fasta.zst"), zstd::encode_all(&text[..], 1)?)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&text)?;
    fs::write(folder.join("a.fasta.gz"), encoder.finish()?)?;
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    writer.write_all(&text)?;
    fs::write(folder.join("a.fasta.bgz"), writer.finish()?)?;
    text.clear();
    fs::write(folder.join("empty.fasta"), text)?;
    Ok(())
}

fn manifest(folder: &Path) -> Result<()> {
    let manifest = json!({
        "contract": "1", "tool": "fasta-shard", "version": "0.1.0", "options": {"shards": 1, "long_policy": "window"},
        "inputs": [{"name": "a.fasta", "digest": "blake3-128:00", "bytes": 9, "records": 2}],
        "records": 2, "accepted": 1, "rejected": {"empty": 1, "too_short": 0, "too_long": 0, "invalid_residue": 0},
        "rejects_digest": "xxh3-128:00",
        "rows": 1, "residues": 3, "tokens": 5, "changed": {"uppercased": 1},
        "lengths": {"min": 3, "max": 3, "mean": 3.0, "histogram": [{"from": 0, "count": 1}]},
        "shards": [{"file": "shard-00000.parquet", "rows": 1, "residues": 3, "tokens": 5, "digest": "xxh3-128:00/1"}],
    });
    fs::write(folder.join("entries.json"), manifest.to_string())?;
    let manifest: Manifest = serde_json::from_value(manifest)?;
    fs::write(folder.join("manifest.json"), manifest.to_json())?;
    Ok(())
}

fn rejects(folder: &Path) -> Result<()> {
    let of_records = ListWriter::create_rejects(&folder.join("records.csv"))?;
    let of_rows = ListWriter::create_rejected_rows(&folder.join("rows.csv"))?;
    for (mut writer, reasons, starts) in [
        (of_records, &Reason::SHARDING[..], [None, None]),
        (of_rows, &Reason::EMBEDDING[..], [Some(0), Some(766)]),
    ] {
        for (ordinal, &reason) in (0..).zip(reasons) {
            for start in starts {
                writer.push(&Reject {
                    ordinal,
                    id: "sp|P1,\"one\"\n".into(),
                    length: 1300,
                    reason,
                    start,
                })?;
            }
        }
        writer.finish()?.publish()?;
    }
    Ok(())
}

/// The smallest ESM-2: one layer, two channels.
fn model(configs: &Path, checkpoints: &Path) -> Result<()> {
    let config = json!({
        "model_type": "esm", "position_embedding_type": "rotary", "vocab_size": 33, "mask_token_id": 32,
        "hidden_act": "gelu", "rope_theta": 10000.0, "emb_layer_norm_before": false, "is_folding_model": null,
        "num_hidden_layers": 1, "hidden_size": 2, "num_attention_heads": 1, "intermediate_size": 1,
        "layer_norm_eps": 1e-5, "token_dropout": true,
    });
    fs::write(configs.join("config.json"), config.to_string())?;

    let mut shapes: Vec<(String, Vec<usize>)> =
        vec![("embeddings.word_embeddings.weight".into(), vec![33, 2])];
    for (module, out, inside) in [
        ("encoder.layer.0.attention.LayerNorm", 2, None),
        ("encoder.layer.0.attention.self.query", 2, Some(2)),
        ("encoder.layer.0.attention.self.key", 2, Some(2)),
        ("encoder.layer.0.attention.self.value", 2, Some(2)),
        ("encoder.layer.0.attention.output.dense", 2, Some(2)),
        ("encoder.layer.0.LayerNorm", 2, None),
        ("encoder.layer.0.intermediate.dense", 1, Some(2)),
        ("encoder.layer.0.output.dense", 2, Some(1)),
        ("encoder.emb_layer_norm_after", 2, None),
    ] {
        let weight = [out].into_iter().chain(inside).collect();
        shapes.push((format!("{module}.weight"), weight));
        shapes.push((format!("{module}.bias"), vec![out]));
    }
    shapes.push((
        "encoder.layer.0.attention.self.rotary_embeddings.inv_freq".into(),
        vec![1],
    ));
    for (dtype, bytes) in [("F32", 4), ("BF16", 2), ("I64", 8)] {
        let (mut header, mut end) = (Map::new(), 0);
        for (name, shape) in &shapes {
            let start = end;
            end += bytes * shape.iter().product::<usize>();
            let tensor = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
            header.insert(name.clone(), tensor);
        }
        let header = Value::from(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        file.resize(file.len() + end, 0);
        fs::write(checkpoints.join(format!("{dtype}.safetensors")), file)?;
    }
    Ok(())
}

fn logs(events: &Path, samples: &Path) -> Result<()> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/monitor_log");
    fs::copy(example.join("events.jsonl"), events.join("events.jsonl"))?;
    fs::copy(example.join("gpu.csv"), samples.join("gpu.csv"))?;
    Ok(())
}
