//! The matrix product of a search alone: `product QUERIES TARGETS DIM THREADS` prints the seconds that it takes, without reading, packing
//! or choosing.

use std::error::Error;
use std::thread;
use std::time::Instant;

use plmkit_cpu::{Dtype, Epilogue, Isa, Rows, RowsMut, Weights};

/// As in a search.
const QUERIES: usize = 84;
const TARGETS: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
    let [queries, targets, dim, threads] = arguments[..] else {
        return Err("expected QUERIES TARGETS DIM THREADS".into());
    };
    let values = |count: usize| (0..count).map(|at| (at % 97) as f32 / 97.0 - 0.5).collect();
    let queries: Vec<f32> = values(queries * dim);
    let target: Vec<f32> = values(TARGETS * dim);
    let blocks = targets.div_ceil(TARGETS);
    let pack = || Weights::pack(Isa::best(), Dtype::F32, &target, &[0.0; TARGETS]);
    let packed = (0..threads)
        .map(|_| pack())
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    thread::scope(|scope| {
        for (thread, packed) in packed.iter().enumerate() {
            let queries = &queries;
            scope.spawn(move || {
                let mut out = vec![0.0; QUERIES * TARGETS];
                for _ in (thread..blocks).step_by(threads) {
                    for some in queries.chunks(QUERIES * dim) {
                        let out = &mut out[..some.len() / dim * TARGETS];
                        let out = &mut RowsMut::new(out, TARGETS);
                        packed.apply(Rows::new(some, dim), out, Epilogue::Store, None);
                    }
                }
            });
        }
    });
    println!("{:.3}", start.elapsed().as_secs_f64());
    Ok(())
}
