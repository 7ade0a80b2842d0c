use super::*;

#[test]
fn counts_beyond_all_numbers_stay_the_greatest() {
    let mut shard = Lengths::default();
    for ordinal in 0..2 {
        shard.add(ordinal, u32::MAX, u32::MAX);
        shard.add(ordinal, u32::MAX, 1);
    }
    assert_eq!(shard.clone().with_masked_copies().pairs, u64::MAX);
    let all = Lengths::sum(&[shard.clone(), shard]);
    assert_eq!((all.pairs, all.residue_pairs), (u64::MAX, u64::MAX));
    let model = "facebook/esm2_t33_650M_UR50D";
    let plan = Plan {
        model: model.to_owned(),
        shape: ModelShape::published(model).unwrap(),
        columns: vec!["contacts".parse().unwrap()],
        store_dtype: StoreDtype::F32,
        files: 18,
        tensor_memory_mib: 0,
        tensor_memory: "",
        gpus: NonZeroU32::MIN,
        rate: String::new(),
    };
    let estimate = Estimate::new(plan, &[all], &[], Vec::new());
    assert_eq!(estimate.embedding_bytes, u64::MAX);
}

/// The measured figures are in tests/gpu/results. In a 16-bit type the formula has half of what it has in f32, for 650M 3637.
#[test]
fn memory_is_measured_or_by_a_formula() {
    for (model, dtype, mib) in [
        ("facebook/esm2_t33_650M_UR50D", "f16", 3713),
        ("facebook/esm1b_t33_650M_UR50S", "bf16", 3713),
        ("facebook/esm2_t33_650M_UR50D", "f32", 7275),
        ("facebook/esm2_t30_150M_UR50D", "f16", 1481),
        ("biohub/ESMC-600M", "f16", 3253),
    ] {
        let shape = ModelShape::published(model).unwrap();
        let (found, source) = tensor_memory(&shape, dtype);
        assert_eq!((found, source.starts_with("measured")), (mib, mib == 3713));
    }
}
