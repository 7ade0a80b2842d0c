//! Rejects files, of records and of rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_contract::ByteDigest;
use plmkit_fuzz::{as_file, judged};
use plmkit_store::read_rejects;

fuzz_target!(|bytes: &[u8]| {
    if let Some(file) = judged(as_file(bytes, read_rejects)) {
        assert_eq!(file.digest, ByteDigest::compute(bytes).to_string());
        let mut lines = file.lines.iter();
        assert!(lines.all(|line| line.start.is_some() == file.of_rows));
    }
});
