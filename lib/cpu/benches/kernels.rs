//! GFLOP/s of the kernels on one core.

use std::hint::black_box;
use std::time::Instant;

use plmkit_cpu::{
    Converted, Head, Isa, Multiply, Rows, RowsMut, Scratch, Then, Weights, attention,
};

fn main() {
    for isa in Isa::available() {
        for (rows, inputs, outputs) in [
            (1024, 640, 1920),
            (1024, 640, 640),
            (1024, 640, 2560),
            (1024, 2560, 640),
            (192, 1280, 5120),
        ] {
            let x: Vec<f32> = (0..rows * inputs)
                .map(|i| (i % 17) as f32 / 17.0 - 0.5)
                .collect();
            let weight: Vec<f32> = (0..outputs * inputs)
                .map(|i| (i % 13) as f32 / 13.0 - 0.5)
                .collect();
            let weights = Weights::pack(
                isa,
                if isa.has_bf16() {
                    Multiply::Bf16
                } else {
                    Multiply::F32
                },
                &weight,
                &vec![0.1; outputs],
            )
            .expect("memory");
            let mut out = vec![0.0; rows * outputs];
            let mut converted = Converted::default();
            converted.grow(&weights).expect("memory");
            let mut best = f64::MAX;
            for _ in 0..8 {
                let start = Instant::now();
                weights.apply(
                    Rows::new(&x, inputs),
                    &mut RowsMut::new(&mut out, outputs),
                    Then::Store,
                    Some(&mut converted),
                );
                black_box(&out);
                best = best.min(start.elapsed().as_secs_f64());
            }
            let flop = 2.0 * (rows * inputs * outputs) as f64;
            println!(
                "{isa:12} linear {rows}x{inputs}x{outputs}: {:.1} GFLOP/s",
                flop / best / 1e9
            );
        }
        for (length, dim) in [
            (52, 32),
            (100, 32),
            (300, 32),
            (1000, 32),
            (1000, 64),
            (1000, 16),
        ] {
            let heads = 20;
            let qkv: Vec<f32> = (0..length * 3 * heads * dim)
                .map(|i| ((i * 7919) % 101) as f32 / 50.0 - 1.0)
                .collect();
            let mut out = vec![0.0; length * heads * dim];
            let mut scratch = Scratch::default();
            scratch.grow(length, dim).expect("memory");
            let mut best = f64::MAX;
            for _ in 0..20 {
                let start = Instant::now();
                for number in 0..heads {
                    attention(
                        isa,
                        if isa.has_bf16() {
                            Multiply::Bf16
                        } else {
                            Multiply::F32
                        },
                        Rows::new(&qkv, 3 * heads * dim),
                        Head { number, dim },
                        0..length,
                        &mut RowsMut::new(&mut out, heads * dim),
                        &mut scratch,
                    );
                }
                black_box(&out);
                best = best.min(start.elapsed().as_secs_f64());
            }
            let flop = 4.0 * (length * length * heads * dim) as f64;
            println!(
                "{isa:12} attention {length} of {dim}: {:.1} GFLOP/s",
                flop / best / 1e9
            );
        }
    }
}
