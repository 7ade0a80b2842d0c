use serde_json::json;

use super::*;

const MODEL: &str = "facebook/esm2_t33_650M_UR50D";

fn plan(gpus: u32) -> Plan {
    Plan {
        model: MODEL.to_owned(),
        shape: ModelShape::published(MODEL).unwrap(),
        columns: vec!["mean_33".parse().unwrap()],
        store_dtype: StoreDtype::F32,
        dtype: "f16".to_owned(),
        mfu: 0.5,
        gpus: NonZeroU32::new(gpus).unwrap(),
    }
}

/// Two shards: proteins of 98 and 198 residues, and one in windows of 98, which has 150 residues.
fn work() -> Work {
    let mut work = Work::new();
    let (mut first, mut second) = (Lengths::default(), Lengths::default());
    first.add(0, 98, 98);
    first.add(2, 198, 198);
    second.add(3, 150, 98);
    second.add(3, 150, 98);
    work.add(first, 300);
    work.add(second, 200);
    work
}

#[test]
fn windows_are_rows_of_tokens_and_one_row_of_embeddings() {
    let work = work();
    assert_eq!((work.all.sequences, work.all.proteins), (4, 3));
    assert_eq!(
        (work.all.tokens, work.all.pairs),
        (500, 3 * 100 * 100 + 200 * 200)
    );
    let residues = [98_u64, 198, 150];
    assert_eq!(work.all.residues, residues.iter().sum::<u64>());
    let squares = residues.iter().map(|residues| residues * residues);
    assert_eq!(work.all.residue_pairs, squares.sum::<u64>());
}

#[test]
#[allow(clippy::float_cmp)]
fn time_is_operations_over_a_share_of_the_peak() {
    let names = ["h100 80gb".to_owned()];
    let estimate = Estimate::new(&plan(2), work(), &[], &names).unwrap();
    let linear = 500.0 * 2.0 * 648_806_400.0;
    let attention = 70_000.0 * 33.0 * 4.0 * 1280.0;
    assert_eq!(
        (estimate.linear_flops, estimate.attention_flops),
        (linear, attention)
    );
    let [device] = &estimate.devices[..] else {
        panic!("{:?}", estimate.devices);
    };
    assert_eq!(device.device, "H100 80GB HBM3");
    let seconds = (linear + attention) / (0.5 * 989.4e12);
    assert_eq!((device.device_hours * 3600.0 / seconds * 1e9).round(), 1e9);
    assert_eq!((device.tokens_per_s * seconds).round(), 500.0);
    // Two GPUs have a shard each: the first one has more work.
    let first = (300.0 * 2.0 * 648_806_400.0 + 50_000.0 * 33.0 * 4.0 * 1280.0) / (0.5 * 989.4e12);
    assert_eq!((device.wall_hours * 3600.0 / first * 1e9).round(), 1e9);
}

#[test]
fn a_device_is_named_by_a_part_and_an_unknown_one_is_refused() {
    let of = |dtype: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let plan = Plan {
            dtype: dtype.to_owned(),
            ..plan(1)
        };
        let estimate = Estimate::new(&plan, work(), &[], &names)?;
        let devices = estimate.devices.into_iter();
        Ok::<_, DeviceError>(devices.map(|device| device.device).collect::<Vec<_>>())
    };
    assert_eq!(of("f16", &[]).unwrap(), DEFAULT_DEVICES);
    assert_eq!(of("f16", &["4090"]).unwrap(), ["GeForce RTX 4090"]);
    // A whole name is no part of another.
    assert_eq!(of("f16", &["L4", "l4"]).unwrap(), ["L4"]);
    assert_eq!(of("f16", &["L40"]).unwrap(), ["L40"]);
    assert!(of("f16", &["A100"]).unwrap()[0].starts_with("A100-"));
    let all = of("f16", &["all"]).unwrap().len();
    let with_bf16 = of("bf16", &["all"]).unwrap().len();
    assert!(with_bf16 < all, "{with_bf16} of {all}");
    assert_eq!(
        of("bf16", &["T4"]),
        Err(DeviceError::Dtype("T4".into(), "bf16".into()))
    );
    let error = of("f16", &["cpu"]).unwrap_err().to_string();
    assert!(
        error.starts_with("no rate is known for 'cpu': expected a part of B200, "),
        "{error}"
    );
}

#[test]
fn a_measured_rate_is_that_of_one_device_and_of_this_model() {
    let shape = plan(1).shape;
    let flops = 500.0 * shape.flops_per_token() as f64 + 70_000.0 * shape.flops_per_pair() as f64;
    let run = json!({
        "run": "a", "model": MODEL, "device": "cuda", "dtype": "f16", "tokens": 500, "mean_length": 125.0,
        "longest": 200, "elapsed_s": 5.0, "efficiency": { "flops": flops }, "gpus": [{}, {}],
        "gpu_names": ["NVIDIA L4", "NVIDIA L4"],
    });
    let report = |run: &serde_json::Value| json!({ "events": { "runs": [run, run] } });
    let rates = measured(&report(&run), &shape).unwrap();
    let expected = Measured {
        device: "NVIDIA L4".to_owned(),
        dtype: "f16".to_owned(),
        flops,
        device_s: 10.0,
    };
    assert_eq!(rates, [expected.clone(), expected]);
    let estimate = Estimate::new(&plan(1), work(), &rates, &[]).unwrap();
    assert_eq!(estimate.devices.len(), 1);
    assert_eq!(
        (estimate.devices[0].tokens_per_s * 1e6).round() as u64,
        50_000_000
    );

    let other = ModelShape::published("facebook/esm2_t30_150M_UR50D").unwrap();
    let error = measured(&report(&run), &other).unwrap_err();
    assert_eq!(
        error,
        format!("run a: its operations are not those of this model: measured was {MODEL}")
    );
    let mut unknown = run.clone();
    unknown["efficiency"]["flops"] = json!(null);
    assert!(measured(&report(&unknown), &shape).is_err());
    assert!(measured(&json!({ "events": null }), &shape).is_err());
    let mut impossible = run.clone();
    impossible["elapsed_s"] = json!(1e-9);
    let error = measured(&report(&impossible), &shape).unwrap_err();
    assert!(error.contains("its rate is impossible"), "{error}");
}

#[test]
fn disk_is_the_sum_of_its_parts() {
    let mut plan = plan(1);
    let disk = |plan: &Plan| Estimate::new(plan, work(), &[], &[]).unwrap().disk;
    let pooled = disk(&plan);
    assert_eq!(
        pooled.results,
        pooled.shards + pooled.embeddings + pooled.reports
    );
    assert_eq!(
        pooled.peak,
        pooled.results + pooled.batches + pooled.checkpoints
    );
    assert_eq!((pooled.shards, pooled.embeddings), (500, 3 * 33 + 3 * 4096));
    assert_eq!(pooled.batches, 300 + 2 * 107, "those of the larger shard");
    plan.columns.push("residues_33".parse().unwrap());
    plan.columns.push("contacts".parse().unwrap());
    plan.store_dtype = StoreDtype::F16;
    let squares = 98 * 98 + 198 * 198 + 150 * 150;
    let values = 3 * 2253 + 2 * 446 * 1280 + 2 * squares;
    assert!(disk(&plan).embeddings.abs_diff(3 * 33 + values) < 3);
}

#[test]
fn the_table_has_a_line_for_each_device() {
    let estimate = Estimate::new(&plan(1), work(), &[], &[]).unwrap();
    let text = table(&estimate);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!("{MODEL}: 33 layers of 1280, mean_33 in f32")
    );
    assert_eq!(
        lines[1],
        "work   0 samples, 2 shards, 4 sequences, 500 tokens"
    );
    assert_eq!(lines[2], "       661 GFLOP: 1.8 % attention");
    assert_eq!(lines.len(), 7 + DEFAULT_DEVICES.len());
    assert!(lines[8].starts_with("H100 80GB HBM3 "), "{text}");
}
