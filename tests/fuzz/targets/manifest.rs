//! `manifest.json`, as a rerun of `fasta-shard` reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_contract::Manifest;
use plmkit_fuzz::{as_file, judged};
use plmkit_store::read_json;

fuzz_target!(|bytes: &[u8]| {
    judged(as_file(bytes, read_json::<Manifest>));
});
