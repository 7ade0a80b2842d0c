use plmkit_logs::event::Outcome;
use plmkit_telemetry::report::RunSummary;

use super::*;

const MODEL: &str = "facebook/esm2_t33_650M_UR50D";

fn plan(gpus: u32) -> Plan {
    Plan {
        model: MODEL.to_owned(),
        shape: ModelShape::published(MODEL).unwrap(),
        columns: vec!["mean_33".parse().unwrap()],
        store_dtype: StoreDtype::F32,
        files: 18,
        gpus: NonZeroU32::new(gpus).unwrap(),
        rate: "the given 100 TFLOP/s".to_owned(),
    }
}

fn rates(rate: f64) -> Rates {
    vec![("a device".to_owned(), rate)]
}

/// Two shards: proteins of 98 and 198 residues, and one in windows of 98, which has 150 residues.
fn shards() -> Vec<Lengths> {
    let mut shards = vec![Lengths::default(); 2];
    shards[0].add(0, 98, 98);
    shards[0].add(2, 198, 198);
    shards[1].add(3, 150, 98);
    shards[1].add(3, 150, 98);
    shards
}

/// The operations of 300 and 200 tokens, of 100 x 100 + 200 x 200 and 2 x 100 x 100 pairs.
fn flops() -> [f64; 2] {
    [(300.0, 50_000.0), (200.0, 20_000.0)]
        .map(|(tokens, pairs)| tokens * 2.0 * 648_806_400.0 + pairs * 33.0 * 4.0 * 1280.0)
}

#[test]
fn windows_are_rows_of_tokens_and_one_row_of_embeddings() {
    let all = Lengths::sum(&shards());
    assert_eq!((all.sequences, all.proteins), (4, 3));
    assert_eq!((all.tokens, all.pairs), (500, 3 * 100 * 100 + 200 * 200));
    assert_eq!(all.residues, 98 + 198 + 150);
    assert_eq!(all.residue_pairs, 98 * 98 + 198 * 198 + 150 * 150);
    // A protein of 2000 residues that was truncated to 98.
    let mut truncated = Lengths::default();
    truncated.add(7, 2000, 98);
    assert_eq!((truncated.proteins, truncated.residues), (1, 98));
}

#[test]
fn a_masked_copy_of_a_row_costs_as_much_as_the_row() {
    let masked = shards().into_iter().map(Lengths::with_masked_copies);
    let all = Lengths::sum(&masked.collect::<Vec<_>>());
    // Rows of 100 tokens, of which there are three, and of 200, once more for each residue.
    assert_eq!(all.sequences, 3 * 99 + 199);
    assert_eq!(all.tokens, 3 * 99 * 100 + 199 * 200);
    assert_eq!(all.pairs, 3 * 99 * 100 * 100 + 199 * 200 * 200);
    assert_eq!((all.proteins, all.residues), (3, 98 + 198 + 150));
}

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
    let mut plan = plan(1);
    plan.columns = vec!["contacts".parse().unwrap()];
    let estimate = Estimate::new(plan, &[all], &[], rates(1e14));
    assert_eq!(estimate.embedding_bytes, u64::MAX);
}

#[test]
#[allow(clippy::float_cmp)]
fn time_is_operations_over_the_rate() {
    let shards = shards();
    let [first, second] = flops();
    let linear = 500.0 * 2.0 * 648_806_400.0;
    for (gpus, left, on_one, on_all) in [
        (1, &shards[..], first + second, first + second),
        // The larger shard is more than half of the work.
        (2, &shards[..], first + second, first),
        (2, &shards[1..], second, second),
        (2, &[], 0.0, 0.0),
    ] {
        let estimate = Estimate::new(plan(gpus), &shards, left, rates(1e14));
        assert_eq!(estimate.linear_flops, linear);
        assert_eq!(
            estimate.linear_flops + estimate.attention_flops,
            first + second
        );
        assert_eq!((estimate.shards, estimate.shards_left), (2, left.len()));
        let time = &estimate.times[0];
        assert_eq!(time.device_hours, on_one / 1e14 / 3600.0);
        assert_eq!(time.wall_hours, on_all / 1e14 / 3600.0);
    }
    // Three equal shards on two GPUs: half of the work, which is more than one shard.
    let three = vec![shards[0].clone(); 3];
    let estimate = Estimate::new(plan(2), &three, &three, rates(1.5 * first / 3600.0));
    assert_eq!(estimate.times[0].wall_hours, 1.0);
}

#[test]
fn peaks_are_those_of_the_type() {
    let of = |dtype: &str| {
        let rates = shares_of_peaks(0.4, dtype).into_iter();
        rates
            .map(|(name, rate)| (name, (rate / 1e9).round()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("f16").len(), DEFAULT_DEVICES.len());
    assert_eq!(of("f16")[1], ("H100 80GB HBM3".to_owned(), 395_760.0));
    assert_eq!(of("f32")[1], ("H100 80GB HBM3".to_owned(), 26_760.0));
    assert!(of("bf16").iter().all(|(name, _)| name != "T4"));
}

#[test]
fn bytes_are_those_of_values_and_keys() {
    let bytes = |columns: &[&str], store_dtype| {
        let columns = columns
            .iter()
            .map(|column| column.parse().unwrap())
            .collect();
        let plan = Plan {
            columns,
            store_dtype,
            ..plan(1)
        };
        Estimate::new(plan, &shards(), &[], vec![]).embedding_bytes
    };
    assert_eq!(bytes(&["mean_33"], StoreDtype::F32), 3 * (49 + 1280 * 4));
    let values = 3 * 1280 + 446 * (1280 + 33) + 98 * 98 + 198 * 198 + 150 * 150;
    let columns = ["mean_33", "residues_33", "logits", "contacts"];
    assert_eq!(bytes(&columns, StoreDtype::F16), 3 * 49 + values * 2);
}

/// A run of the first shard on two GPUs.
fn run(change: impl FnOnce(&mut RunSummary)) -> RunSummary {
    let mut run = RunSummary::default();
    let (setup, shape) = (&mut run.setup, plan(1).shape);
    setup.flops_per_token = Some(shape.flops_per_token());
    setup.flops_per_pair = Some(shape.flops_per_pair());
    (setup.run, setup.model) = ("a".to_owned(), Some(MODEL.to_owned()));
    (setup.device, setup.dtype) = (Some("cuda".to_owned()), Some("f16".to_owned()));
    setup.gpu_names = Some(vec!["NVIDIA L4".to_owned(); 2]);
    (run.outcome, run.device_s) = (Some(Outcome::Done), Some(10.0));
    (run.sequences, run.tokens) = (2, 300);
    run.efficiency.flops = Some(flops()[0]);
    change(&mut run);
    run
}

fn measured(runs: &[RunSummary], left: Vec<Lengths>) -> Result<Measured, String> {
    let mut measured = Measured {
        left,
        ..Measured::default()
    };
    for run in runs {
        measured.add(run, &plan(1).shape)?;
    }
    Ok(measured)
}

#[test]
#[allow(clippy::float_cmp)]
fn the_rate_is_that_of_one_device() {
    let whole = run(|_| {});
    // It went on with one other GPU.
    let resumed = run(|run| run.device_s = Some(13.0));
    let of_cpu = run(|run| {
        (run.setup.device, run.setup.gpu_names) = (Some("cpu".to_owned()), None);
        run.device_s = Some(5.0);
    });
    let found = measured(&[whole, resumed, of_cpu], vec![]).unwrap();
    assert_eq!(found.device_s, 10.0 + 13.0 + 5.0);
    assert_eq!(found.flops, 3.0 * flops()[0]);
    assert!(found.devices.iter().eq(["NVIDIA L4 in f16", "cpu in f16"]));
}

#[test]
fn a_run_that_ended_finished_the_shard_with_its_sums() {
    let left = |change: fn(&mut RunSummary)| measured(&[run(change)], shards()).unwrap().left;
    assert_eq!(left(|_| {}), shards()[1..]);
    // An interrupted run, a run without an end, and runs of other shards.
    assert_eq!(left(|run| run.outcome = Some(Outcome::Stopped)), shards());
    assert_eq!(left(|run| run.outcome = None), shards());
    assert_eq!(left(|run| run.sequences = 3), shards());
    let mut others = shards();
    others[0].tokens += 1;
    let found = measured(&[run(|_| {})], others.clone()).unwrap();
    assert_eq!(found.left, others);
    // Of two equal shards a run finishes one.
    let twice = vec![shards()[0].clone(); 2];
    let found = measured(&[run(|_| {})], twice.clone()).unwrap();
    assert_eq!(found.left, twice[1..]);
}

#[test]
fn a_run_of_another_model_and_an_impossible_rate_are_refused() {
    let error = |change: fn(&mut RunSummary)| measured(&[run(change)], vec![]).unwrap_err();
    let other = format!("run a: its operations are not those of this model: measured was {MODEL}");
    assert_eq!(error(|run| run.setup.flops_per_token = Some(7)), other);
    assert_eq!(error(|run| run.setup.flops_per_pair = None), other);
    assert_eq!(
        error(|run| run.efficiency.flops = None),
        "run a: its operations are unknown"
    );
    for device_s in [Some(1e-9), Some(1e300), Some(0.0), Some(-1.0), None] {
        let impossible = run(|run| run.device_s = device_s);
        let error = measured(&[impossible], vec![]).unwrap_err();
        assert!(error.contains("its rate is impossible"), "{error}");
    }
}

#[test]
fn the_table_has_a_line_for_the_time() {
    let shards = shards();
    let [first, second] = flops();
    let rate = (first + second) / 90.0;
    let text = Estimate::new(plan(1), &shards, &shards, rates(rate)).to_string();
    let expected = format!(
        "{MODEL}: 33 layers of 1280, mean_33 in f32
work   3 proteins, 4 sequences, 500 tokens
       6.61e11 FLOP, 1.8 % of them attention
files  18
bytes  15507 of embeddings, before compression
time   of 2 of 2 shards at the given 100 TFLOP/s: 1.5 min on a device
"
    );
    assert_eq!(text, expected);
    let mut two = rates(second / 5400.0);
    two.push(("H100".to_owned(), second / 0.5));
    let text = Estimate::new(plan(2), &shards, &shards[1..], two).to_string();
    let time = text.lines().last().unwrap();
    assert_eq!(
        time,
        "time   of 1 of 2 shards at the given 100 TFLOP/s: 1.5 h on a device (1.5 h on 2), 0.5 s on H100 (0.5 s on 2)"
    );
}
