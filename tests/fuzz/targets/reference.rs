//! Parquet of any origin, as `validate-embeddings` reads a reference.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use plmkit_fuzz::{as_file, judged, let_readers_catch_panics, mutate_footed};
use plmkit_store::ForeignParquet;

fuzz_target!(init: let_readers_catch_panics(), |bytes: &[u8]| {
    as_file(bytes, |path| {
        let opened = ForeignParquet::open(path, |schema| {
            Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
        });
        let Some(mut rows) = judged(opened) else {
            return;
        };
        while let Some(Some(_)) = judged(rows.next_batch()) {}
    });
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_footed(&mut data[..max_size], size, seed, b"PAR1")
});
