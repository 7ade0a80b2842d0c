//! The well-known mistakes, made on purpose: each breaks the bound that the golden tests hold.

use std::sync::{Arc, Mutex};
use std::{io, iter};

use plmkit_reference::{flat, gelu};

use crate::golden::Golden;
use crate::oracle::oracle;
use crate::support::{ROUNDING, Tiny, relative_error};

/// A mistake must stand out from rounding by this factor.
const CLEARLY: f64 = 5.0;

fn layer_error(model: &plmkit_esm2::Esm2) -> f64 {
    let golden = Golden::of("fair-esm");
    golden.worst_layer_error(model, [golden.proteins().as_slice()])
}

#[test]
fn frequencies_computed_again_instead_of_the_checkpoints_own() {
    let without = Tiny::new().renamed(|name| (!name.contains("inv_freq")).then(|| name.to_owned()));
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    let model = tracing::subscriber::with_default(subscriber, || without.load()).unwrap();
    let error = layer_error(&model);
    println!("inv_freq computed again: {error:.1e}");
    assert!(error > CLEARLY * ROUNDING);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains("WARN") && log.contains("no inv_freq for 4 of 4 layers"),
        "{log}"
    );
}

#[test]
fn embeddings_not_scaled_by_0_88() {
    let mut tiny = Tiny::new();
    tiny.config["token_dropout"] = false.into();
    let error = layer_error(&tiny.load().unwrap());
    println!("no 0.88: {error:.1e}");
    assert!(error > CLEARLY * ROUNDING);
}

#[test]
fn gelu_by_tanh() {
    let tanh =
        |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    let error = |gelu: fn(f64) -> f64| {
        let golden = Golden::of("fair-esm");
        let oracle = oracle().with_gelu(gelu);
        let mut worst = 0.0;
        for protein in golden.proteins() {
            for (layer, found) in oracle.forward(&protein.tokens).layers.iter().enumerate() {
                worst = f64::max(
                    worst,
                    relative_error(&flat(found), golden.layer(&protein, layer), 64),
                );
            }
        }
        worst
    };
    let (right, wrong) = (error(gelu), error(tanh));
    println!("tanh GELU: {wrong:.1e}; the exact one: {right:.1e}");
    assert!(right <= ROUNDING && wrong > CLEARLY * ROUNDING);
}

#[test]
fn special_tokens_in_the_mean() {
    let (layers, hidden) = (4, 64);
    let golden = Golden::of("fair-esm");
    let mut error = [0.0; 3];
    for protein in golden.proteins() {
        let last = flat(&oracle().forward(&protein.tokens).layers[layers]);
        let tokens = protein.tokens.len();
        for (error, rows) in iter::zip(&mut error, [1..tokens - 1, 0..tokens - 1, 1..tokens]) {
            let mut mean = vec![0f32; hidden];
            for row in last.chunks_exact(hidden).skip(rows.start).take(rows.len()) {
                iter::zip(&mut mean, row)
                    .for_each(|(mean, value)| *mean += value / rows.len() as f32);
            }
            *error = f64::max(
                *error,
                relative_error(&mean, golden.mean(&protein, layers), hidden),
            );
        }
    }
    let [right, bos, eos] = error;
    println!("mean: right {right:.1e}, with BOS {bos:.1e}, with EOS {eos:.1e}");
    assert!(right <= ROUNDING && bos > CLEARLY * ROUNDING && eos > CLEARLY * ROUNDING);
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
