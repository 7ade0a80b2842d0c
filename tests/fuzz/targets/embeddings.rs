//! Embeddings, as `validate-embeddings` and a rerun of `gpu-embed` read them.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use plmkit_fuzz::{as_file, judged, let_readers_catch_panics, mutate_footed};
use plmkit_store::{EmbeddingsReader, StoreError};

fuzz_target!(init: let_readers_catch_panics(), |bytes: &[u8]| {
    let read = |path: &std::path::Path| -> Result<(u64, u64), StoreError> {
        let mut reader = EmbeddingsReader::open(path)?;
        let mut rows = 0;
        while let Some(batch) = reader.next_batch()? {
            rows += batch.num_rows() as u64;
        }
        Ok((rows, reader.digest().rows()))
    };
    if let Some((rows, expected)) = judged(as_file(bytes, read)) {
        assert_eq!(rows, expected);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_footed(&mut data[..max_size], size, seed, b"PAR1")
});
