//! Shards, as `pack-batches` and `validate-embeddings` read them.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use plmkit_fuzz::{as_file, judged, let_readers_catch_panics, mutate_footed};
use plmkit_store::read_shard;

fuzz_target!(init: let_readers_catch_panics(), |bytes: &[u8]| {
    if let Some(table) = judged(as_file(bytes, read_shard)) {
        let rows: usize = table.batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(table.digest.rows(), rows as u64);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_footed(&mut data[..max_size], size, seed, b"PAR1")
});
