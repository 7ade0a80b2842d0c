//! `manifest.json`, as a rerun of `fasta-shard` reads it, `dataset.json` of a known dataset, and `batch-size.json`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_contract::{BatchSize, ListedDataset, Manifest, Sealed};
use plmkit_fuzz::{as_file, judged};
use plmkit_store::read_sealed;

fuzz_target!(|bytes: &[u8]| {
    judged(as_file(bytes, read_sealed::<Manifest>));
    judged(as_file(bytes, read_sealed::<BatchSize>));
    judged(as_file(bytes, read_sealed::<ListedDataset>));
    // Few mutations match a seal, so entries without a seal are tried too.
    if let Ok(mut manifest) = serde_json::from_slice::<Manifest>(bytes) {
        // Fractions may change in a round trip.
        manifest.lengths.mean = None;
        let again = Manifest::from_json(manifest.to_json().as_bytes()).expect("just sealed");
        assert_eq!(again, manifest);
    }
    if let Ok(listed) = serde_json::from_slice::<ListedDataset>(bytes) {
        let again = ListedDataset::from_json(listed.to_json().as_bytes()).expect("just sealed");
        assert_eq!(again.rows(), listed.rows());
        assert_eq!(again.combined_rows(), listed.combined_rows());
        assert_eq!(again.work().has_separate_windows(), listed.work().has_separate_windows());
    }
});
