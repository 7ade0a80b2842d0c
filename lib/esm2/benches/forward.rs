//! Tokens per second of the forward pass, on weights drawn at random in the shape of a published model.
//!
//! `cargo bench -p plmkit-esm2 --bench forward -- 150M 2 auto f32 64 300 1024 …`: the model, threads, kernels, type, and the
//! tokens of each sequence; without lengths, a mix like that of `UniProt`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use plmkit_contract::{Column, Pooling, Stop, VectorColumn};
use plmkit_esm2::{ComputeOptions, Dtype, Esm2, Kernels, Varlen, set_threads};
use safetensors::tensor::{Dtype as Stored, TensorView, serialize_to_file};
use serde_json::json;

/// Name, layers, channels, heads.
const SHAPES: [(&str, usize, usize, usize); 4] = [
    ("8M", 6, 320, 20),
    ("35M", 12, 480, 20),
    ("150M", 30, 640, 20),
    ("650M", 33, 1280, 20),
];

/// Tokens of each sequence: about the quantiles of `UniProt`, cut at 1,022 residues.
const LENGTHS: [usize; 16] = [
    62, 108, 150, 190, 226, 262, 298, 334, 372, 414, 462, 520, 600, 720, 940, 1024,
];

fn main() {
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let name = arguments.first().map_or("150M", String::as_str);
    let threads = arguments
        .get(1)
        .map_or(2, |threads| threads.parse().expect("threads"));
    let kernels = arguments.get(2).map_or(Kernels::Best, |kernels| {
        kernels.parse().expect("the name of kernels")
    });
    let dtype: Dtype = arguments
        .get(3)
        .map_or(Dtype::F32, |dtype| dtype.parse().expect("a type"));
    let lengths: Vec<usize> = match arguments.get(4..) {
        Some([]) | None => LENGTHS.to_vec(),
        Some(lengths) => lengths
            .iter()
            .map(|length| length.parse().expect("tokens"))
            .collect(),
    };
    let shape = SHAPES
        .iter()
        .find(|shape| shape.0 == name)
        .expect("8M, 35M, 150M or 650M");

    set_threads(NonZeroUsize::new(threads).expect("at least one thread"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_checkpoint(folder.path(), *shape);
    let start = Instant::now();
    let model = Esm2::load(
        folder.path(),
        ComputeOptions {
            kernels,
            dtype: Some(dtype),
            ..ComputeOptions::default()
        },
        &Stop::default(),
    )
    .expect("the checkpoint just written");
    println!("{name}: loaded in {:.2} s", start.elapsed().as_secs_f64());

    let (tokens, cu_seqlens) = pack(&lengths);
    let batch = Varlen::new(&tokens, &cu_seqlens).expect("whole sequences");
    let column = Column::Pooled(VectorColumn {
        pool: Pooling::Mean,
        layer: shape.1 as u32,
    });
    for _ in 0..3 {
        let start = Instant::now();
        let vectors = model
            .embed(batch, &[column], dtype, &Stop::default())
            .expect("a forward pass");
        let seconds = start.elapsed().as_secs_f64();
        assert!(vectors[0].iter().all(|value| value.is_finite()));
        let rate = tokens.len() as f64 / seconds;
        println!(
            "{} tokens, {threads} threads: {seconds:.2} s, {rate:.0} tokens/s",
            tokens.len()
        );
    }
}

fn pack(lengths: &[usize]) -> (Vec<u8>, Vec<i32>) {
    let (mut tokens, mut cu_seqlens) = (Vec::new(), vec![0]);
    for length in lengths {
        let residues = (0..length - 2).map(|i| 4 + (i * 7 % 20) as u8);
        tokens.extend([0].into_iter().chain(residues).chain([2]));
        cu_seqlens.push(i32::try_from(tokens.len()).expect("fewer than 2^31 tokens"));
    }
    (tokens, cu_seqlens)
}

fn write_checkpoint(folder: &Path, (_, layers, hidden, heads): (&str, usize, usize, usize)) {
    let config = json!({
        "model_type": "esm", "position_embedding_type": "rotary", "token_dropout": true, "vocab_size": 33,
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "intermediate_size": 4 * hidden, "layer_norm_eps": 1e-5,
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("space for a checkpoint");

    let mut tensors = BTreeMap::new();
    let mut put = |name: String, shape: &[usize], scale: f32, centre: f32| {
        let values = (1..=shape.iter().product::<usize>()).map(|i| {
            // Fibonacci hashing: evenly spread over (-1, 1), and the same on every machine.
            let spread = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            centre + scale * (spread as f32 / (1 << 23) as f32 - 1.0)
        });
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        tensors.insert(name, (shape.to_vec(), bytes));
    };
    let wide = 4 * hidden;
    put(
        "esm.embeddings.word_embeddings.weight".to_owned(),
        &[33, hidden],
        1.0,
        0.0,
    );
    for layer in 0..layers {
        let layer = format!("esm.encoder.layer.{layer}");
        for (module, out, into) in [
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", wide, hidden),
            ("output.dense", hidden, wide),
        ] {
            put(format!("{layer}.{module}.weight"), &[out, into], 0.05, 0.0);
            put(format!("{layer}.{module}.bias"), &[out], 0.05, 0.0);
        }
        for module in ["attention.LayerNorm", "LayerNorm"] {
            put(format!("{layer}.{module}.weight"), &[hidden], 0.1, 1.0);
            put(format!("{layer}.{module}.bias"), &[hidden], 0.1, 0.0);
        }
    }
    put(
        "esm.encoder.emb_layer_norm_after.weight".to_owned(),
        &[hidden],
        0.1,
        1.0,
    );
    put(
        "esm.encoder.emb_layer_norm_after.bias".to_owned(),
        &[hidden],
        0.1,
        0.0,
    );
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view =
            TensorView::new(Stored::F32, shape.clone(), bytes).expect("as many bytes as values");
        (name, view)
    });
    serialize_to_file(views, None, &folder.join("model.safetensors"))
        .expect("space for a checkpoint");
}
