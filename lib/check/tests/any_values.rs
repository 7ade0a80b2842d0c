//! Whatever bits a file has for values, there is a verdict, and values that are no numbers fail it.

use plmkit_check::{CheckOutcome, Criteria, EmbeddedFile, Recomputed, Validator};
use plmkit_contract::{
    Column, EmbeddingLayout, Labels, Provenance, RowDigest, RowKey, SequenceDigest, StoreDtype,
    VOCABULARY,
};
use proptest::prelude::*;

const COLUMNS: [&str; 8] = [
    "mean_0",
    "mean_6",
    "max_6",
    "std_6",
    "bos_6",
    "residues_6",
    "logits",
    "contacts",
];

const DIM: usize = 3;

/// Any bits of an f32, those at the ends of its range more often.
fn value() -> impl Strategy<Value = f32> {
    let ends = [
        0,
        1,
        0x007f_ffff,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7fc0_0000,
        0x3f80_0000,
        0x7f61_b1e6,
    ];
    let end = (proptest::sample::select(ends.to_vec()), any::<bool>());
    let end = end
        .prop_map(|(bits, negative): (u32, bool)| f32::from_bits(bits | u32::from(negative) << 31));
    prop_oneof![1 => any::<u32>().prop_map(f32::from_bits), 1 => end, 2 => -3_f32..3.0]
}

/// The vectors of a protein of so many residues, one for each column.
fn vectors(residues: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
    let lengths = [
        DIM,
        DIM,
        DIM,
        DIM,
        DIM,
        residues * DIM,
        residues * VOCABULARY,
        residues * residues,
    ];
    Vec::from(lengths.map(|length| prop::collection::vec(value(), length)))
}

/// A protein: its residues, its vectors, and the same computed again.
fn protein() -> impl Strategy<Value = (usize, Vec<Vec<f32>>, Vec<Vec<f32>>)> {
    (1..5_usize).prop_flat_map(|residues| (Just(residues), vectors(residues), vectors(residues)))
}

proptest! {
    #[test]
    fn no_value_causes_a_panic_and_none_that_is_no_number_passes(
        proteins in prop::collection::vec(protein(), 0..40),
        store in proptest::sample::select(vec![StoreDtype::F32, StoreDtype::F16]),
        dtype in proptest::sample::select(vec!["f32", "f16", "bf16", "int8"]),
    ) {
        let columns: Vec<Column> = COLUMNS.iter().map(|name| name.parse().unwrap()).collect();
        let layout = EmbeddingLayout {
            columns: columns.clone(),
            dim: DIM,
            logits: plmkit_contract::VOCABULARY,
            dtype: store,
            stitched: false,
            labels: Labels::default(),
        };
        let made_by = Provenance::new("gpu-embed", vec![])
            .with("model", "m")
            .with("dtype", dtype);
        let rows = (0..).zip(&proteins);
        let rows = rows.map(|(ordinal, (.., again))| ((ordinal, 0), again.clone()));
        let mut criteria = Criteria::default();
        criteria.recomputed = Some(Recomputed {
            made_by: made_by.clone(),
            columns,
            rows: rows.collect(),
        });
        let mut validator = Validator::new(&criteria, false);
        let file = EmbeddedFile {
            name: "e.parquet".to_owned(),
            position: 0,
            provenance: made_by,
            layout,
            rows: RowDigest::default(),
        };
        validator.begin_file(file);
        for (ordinal, (residues, vectors, _)) in (0..).zip(&proteins) {
            let row = RowKey {
                ordinal,
                id: "P",
                start: 0,
                length: *residues as u32,
                truncated: false,
                // Some have the same sequence.
                digest: SequenceDigest::new(&[ordinal as u8 % 20]),
                n_windows: 1,
            };
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            validator.add_row(&row, &vectors);
        }
        let verdict = validator.finish().verdict(&criteria);
        let are_finite = proteins.iter().all(|(_, vectors, _)| vectors.iter().flatten().all(|value| value.is_finite()));
        let finite = verdict.checks.iter().find(|check| check.definition.name == "finite").unwrap();
        prop_assert_eq!(finite.outcome == CheckOutcome::Fail, !are_finite, "{:?}", finite);
        serde_json::to_string(&verdict).unwrap();
    }
}
