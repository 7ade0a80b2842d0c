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
        gpus: NonZeroU32::MIN,
        rate: String::new(),
    };
    let estimate = Estimate::new(plan, &[all], &[], Vec::new());
    assert_eq!(estimate.embedding_bytes, u64::MAX);
}
