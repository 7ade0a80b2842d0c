//! Batches, as `gpu-embed` reads them: the slices that go to libtorch must be what they claim.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use plmkit_contract::Stop;
use plmkit_fuzz::{as_file, judged, let_readers_catch_panics, mutate_footed};
use plmkit_store::BatchesFile;

fuzz_target!(init: let_readers_catch_panics(), |bytes: &[u8]| {
    as_file(bytes, |path| {
        let Some(file) = judged(BatchesFile::open(path, &Stop::default())) else {
            return;
        };
        let mut rows = 0;
        for index in 0..file.len() {
            let Some(pack) = judged(file.batch(index)) else {
                continue;
            };
            let offsets = pack.cu_seqlens();
            assert_eq!(offsets.len(), pack.sequences() + 1);
            assert!(offsets.is_sorted());
            assert_eq!(offsets[pack.sequences()] as usize, pack.tokens().len());
            rows += pack.sequences() as u64;
        }
        assert_eq!(rows, file.digest().rows());
    });
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_footed(&mut data[..max_size], size, seed, b"ARROW1")
});
