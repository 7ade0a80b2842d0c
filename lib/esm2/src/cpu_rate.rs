//! How fast this CPU computes the layers of a model.

use std::time::{Duration, Instant};

use plmkit_contract::{Dtype, ModelShape};
use plmkit_cpu::{Collector, Encoder, Isa, Layer, LayerNorm, Readout, Weights};
use plmkit_kit::Stop;

use crate::error::EsmError;
use crate::thread_pool::threads;

/// Channels above which a CPU is no faster.
const WIDEST: u32 = 1280;
/// The least tokens of a batch, and those for each thread.
const TOKENS: [usize; 2] = [1024, 256];
/// The most tokens of a sequence.
const LONGEST: u64 = 4096;

/// Returns the floating-point operations a second with which the threads of [`set_threads`](crate::set_threads) compute a layer of a model
/// in a type, on sequences of `length` tokens. The layer has weights without meaning; one with more than 1,280 channels is measured by
/// one of a part of them. Computes for `time` after a first batch.
pub fn cpu_rate(
    shape: &ModelShape,
    dtype: Dtype,
    length: u64,
    time: Duration,
    stop: &Stop,
) -> Result<f64, EsmError> {
    let isa = Isa::best();
    let part = shape.hidden.div_ceil(WIDEST);
    let shape = ModelShape {
        layers: 1,
        hidden: shape.hidden / part,
        intermediate: shape.intermediate / part,
        ..*shape
    };
    let (hidden, intermediate) = (shape.hidden as usize, shape.intermediate as usize);
    let length = (length.min(LONGEST) as usize / part as usize).max(1);
    let count = TOKENS[0].max(TOKENS[1] * threads().get()).div_ceil(length);
    let dense = |inputs: usize, outputs: usize, is_gated: bool| -> Result<_, EsmError> {
        let row = (0..inputs).map(|i| (i * 7919 % 1021) as f32 / 1e4 - 0.05);
        let row: Vec<u8> = row.flat_map(f32::to_le_bytes).collect();
        let mut weights = Weights::zeros(isa, dtype, inputs, &vec![0.0; outputs])?;
        if is_gated {
            weights = weights.gated();
        }
        for mut panel in weights.panels() {
            let rows = panel.outputs().map(|_| (Dtype::F32, &row[..]));
            panel.pack(&rows.collect::<Vec<_>>());
        }
        Ok(weights)
    };
    let norm = || LayerNorm {
        weight: vec![1.0; hidden],
        bias: vec![0.0; hidden],
        eps: 1e-5,
    };
    // As in the published models: ESM-2 has 20 heads up to 650M and 40 above.
    let heads = match hidden {
        _ if shape.gated && hidden.is_multiple_of(64) => hidden / 64,
        _ if hidden.is_multiple_of(40) => 20,
        _ => 1,
    };
    let width = intermediate * (1 + usize::from(shape.gated));
    let layer = Layer {
        attention_norm: norm(),
        qkv: dense(hidden, 3 * hidden, false)?,
        query_key_norms: None,
        inv_freq: vec![1.0; hidden / heads / 2],
        out: dense(hidden, hidden, false)?,
        ffn_norm: norm(),
        up: dense(hidden, width, shape.gated)?,
        down: dense(intermediate, hidden, false)?,
        branch_scale: 1e-3,
    };
    let readout = Readout {
        isa,
        layers: 1,
        heads,
        final_norm: norm(),
        language_model: None,
        contact: None,
    };
    let sequences = (0..count).map(|number| number * length..(number + 1) * length);
    let sequences: Vec<_> = sequences.collect();
    let (tokens, mut encoder) = (count * length, Encoder::default());
    let mut x: Vec<f32> = (0..tokens * hidden).map(|i| (i % 251) as f32).collect();
    let mut batch = || -> Result<(), EsmError> {
        let mut collector = Collector::new(&readout, &sequences, Vec::new(), threads(), stop)?;
        let layers = std::slice::from_ref(&layer);
        encoder.forward(&mut x, 0, layers, dtype == Dtype::F32, &mut collector)?;
        Ok(())
    };
    batch()?;
    let (started, mut batches) = (Instant::now(), 0);
    while batches == 0 || started.elapsed() < time {
        batch()?;
        batches += 1;
    }
    let pairs = (tokens * length) as u64;
    let flops = tokens as u64 * shape.flops_per_token() + pairs * shape.flops_per_pair();
    Ok(flops as f64 * f64::from(batches) / started.elapsed().as_secs_f64())
}
