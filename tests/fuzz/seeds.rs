//! Writes the seeds of the fuzz targets, small files of every kind: `fuzz-seeds FOLDER`.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field};
use plmkit_contract::{
    AliasRow, EmbeddingLayout, KEY_COLUMNS, Kind, Labels, Manifest, Provenance, Reason, Reject,
    RowKey, Sealed, SequenceDigest, ShardRow, StoreDtype, seal,
};
use plmkit_store::{
    BatchesWriter, EmbeddingsWriter, ListWriter, RecordListWriter, Shard, read_shard,
};
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
    known(&data_files, &shard)?;
    fasta(&seeds("fasta")?)?;
    manifest(&seeds("manifest")?)?;
    rejects(&seeds("rejects")?)?;
    model(&seeds("config")?, &seeds("checkpoint")?)?;
    let smallest = concat!(env!("CARGO_MANIFEST_DIR"), "/test-data/smallest.bin");
    let mut smallest = fs::read(smallest)?;
    // Without checksums, so that changed bytes reach the readers.
    for at in 0..smallest.len() - 4 {
        if smallest[at..].starts_with(b"PK\x01\x02") {
            smallest[at + 16..at + 20].fill(0);
        }
    }
    fs::write(seeds("torch_file")?.join("smallest.bin"), smallest)?;
    logs(&seeds("events")?, &seeds("gpu_csv")?)
}

/// Writes a shard and reads it.
fn shard(folder: &Path) -> Result<Shard> {
    let path = folder.join("shard.parquet");
    let mut writer = RecordListWriter::create(&path, Kind::Shard)?;
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
    let provenance = Provenance::new("fasta-shard", vec!["blake3-128:00".into()]);
    writer.finish(&provenance)?.1.finish()?;
    Ok(read_shard(&path)?)
}

fn batches(folder: &Path, shard: &Shard) -> Result<()> {
    let labels = Labels::default();
    for rows in [0, 2, 3] {
        let provenance = Provenance::new("pack-batches", Vec::new()).with("max_batch_tokens", 64);
        let path = folder.join(format!("{rows}.arrow"));
        let mut writer = BatchesWriter::create(&path, labels, &provenance)?;
        if rows > 0 {
            let all = shard.rows();
            writer.write(&shard.pack(all.iter().take(rows), labels)?)?;
            writer.write(&shard.pack(all.iter().skip(rows), labels)?)?;
        }
        writer.finish()?;
    }
    Ok(())
}

fn known(folder: &Path, shard: &Shard) -> Result<()> {
    let mut writer = RecordListWriter::create(&folder.join("known.parquet"), Kind::Known)?;
    for row in shard.rows().iter() {
        writer.push(&AliasRow {
            key: row.key,
            description: row.description,
            dataset: Some(1),
            representative: 7,
        })?;
    }
    let provenance = Provenance::new("fasta-shard", Vec::new());
    Ok(writer.finish(&provenance)?.1.finish()?)
}

fn embeddings(folder: &Path, shard: &Shard) -> Result<()> {
    let layout = EmbeddingLayout {
        columns: vec!["mean_1".parse().map_err(|()| "a column")?],
        dim: 4,
        logits: plmkit_contract::VOCABULARY,
        dtype: StoreDtype::F32,
        stitched: false,
        labels: Labels::default(),
    };
    let values = (0..16_u8).map(|i| f32::from(i) / 7.0);
    let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Float32, false)),
        4,
        Arc::new(Float32Array::from_iter_values(values)),
        None,
    ));
    let keys = KEY_COLUMNS.map(|name| Arc::clone(&shard.batches[0][name]));
    let columns = keys.into_iter().chain([vectors]).collect();
    let provenance = Provenance::new("gpu-embed", Vec::new());
    let mut writer = EmbeddingsWriter::create(&folder.join("embeddings.parquet"), &layout)?;
    writer.write(&RecordBatch::try_new(layout.schema(), columns)?)?;
    writer.finish(&provenance)?;
    // Half precision, numbers of windows and two columns, without rows.
    let bos = "bos_1".parse().map_err(|()| "a column")?;
    let halves = EmbeddingLayout {
        columns: vec![layout.columns[0], bos],
        dtype: StoreDtype::F16,
        stitched: true,
        ..layout
    };
    let writer = EmbeddingsWriter::create(&folder.join("halves.parquet"), &halves)?;
    writer.finish(&provenance)?;
    Ok(())
}

fn fasta(folder: &Path) -> Result<()> {
    let text =
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
    fs::write(folder.join("empty.fasta"), b"")?;
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
    let part = |name: &str| {
        let digest = format!("xxh3-128-sum:{:032x}:1", 5);
        json!({"file": format!("embeddings/{name}"), "rows": 1, "digest": digest})
    };
    let dataset = json!({
        "contract": "1", "tool": "validate-embeddings", "outcome": "pass", "sample": "a", "model_digest": "blake3-128:00",
        "options": {"dtype": "f32"}, "columns": [{"name": "mean_1", "dimension": 4}],
        "shard_options": {"max_residues": 1022}, "embeddings": [part("part-00000.parquet")],
        "combined": {"work": "", "parts": [part("a.parquet"), part("b.parquet")]}, "rows": 1,
    });
    fs::write(folder.join("listed.json"), dataset.to_string())?;
    fs::write(folder.join("dataset.json"), seal(&dataset))?;
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
        writer.finish()?.1.finish()?;
    }
    Ok(())
}

/// Writes the smallest ESM-2: one layer, two channels.
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
