//! The engine: one model for several outputs, and what exists is known before the model is loaded.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use plmkit_contract::{
    ByteDigest, Layers, ModelName, Outputs, Pooling, Provenance, Scores, StoreDtype,
};
use plmkit_engine::{Engine, Injection, Job, RunConfig, RunOutcome, RunProgress, Windows};
use plmkit_esm2::{ComputeOptions, Device, Dtype, Kernels};
use plmkit_kit::Stop;
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};
use serde_json::{Value, json};

use crate::assert_has;
use crate::common::case::{Case, in_windows};
use crate::common::{assert_fails, bin, run};

/// Means of the last layer.
fn means() -> Outputs {
    Outputs {
        pools: vec![Pooling::Mean],
        layers: Layers::Last,
        residues: false,
        logits: false,
        contacts: false,
        scores: None,
    }
}

fn config(case: &Case) -> RunConfig {
    RunConfig {
        model: case.model.clone(),
        model_name: ModelName {
            name: "tiny".to_owned(),
            revision: None,
        },
        compute: ComputeOptions {
            device: Device::Cpu,
            ..ComputeOptions::default()
        },
        outputs: means(),
        scores_positions: None,
        windows: Windows::Stitch,
        store_dtype: StoreDtype::F32,
        threads: NonZeroUsize::MIN,
        prefetch: 4,
        checkpoint_interval: Duration::from_secs(30),
        digests: None,
        injection: Injection::default(),
    }
}

fn job(case: &Case, out: &str) -> Job {
    Job {
        batches: vec![case.path("b.arrow")],
        out: case.path(out),
        ..Job::default()
    }
}

fn embed(engine: &mut Engine, job: &Job) -> RunOutcome {
    let outcome = engine.embed(job, &Stop::default(), &mut |_| {});
    outcome.expect("an outcome")
}

/// Asks for a stop once something is computed.
fn embed_and_stop(engine: &mut Engine, job: &Job) {
    let stop = Stop::default();
    let flag = stop.flag();
    let outcome = engine.embed(job, &stop, &mut |progress| {
        if let RunProgress::Advanced { .. } = progress {
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let outcome = outcome.expect("an outcome");
    assert!(matches!(outcome, RunOutcome::Stopped { .. }), "{outcome:?}");
}

#[test]
fn jobs_of_one_engine_give_the_bytes_of_an_engine_each() {
    let injection = Injection {
        out_of_memory_above: Some(60),
        not_finite: vec![3, 5],
        ..Injection::default()
    };
    let (plain, windows) = (Case::new(), in_windows());
    for (outputs, injection) in [
        (means(), Injection::default()),
        (
            Outputs {
                logits: true,
                ..means()
            },
            injection,
        ),
        (
            Outputs {
                scores: Some(Scores::WildType),
                ..means()
            },
            Injection::default(),
        ),
    ] {
        let config = RunConfig {
            outputs,
            injection,
            ..config(&plain)
        };
        let engine = || Engine::new(config.clone(), &Stop::default()).expect("an engine");
        let mut one = engine();
        embed_and_stop(&mut one, &job(&windows, "stopped.parquet"));
        for (number, case) in [&plain, &windows, &plain].into_iter().enumerate() {
            let [own, shared] = ["own", "shared"].map(|name| format!("{name}-{number}.parquet"));
            embed(&mut engine(), &job(case, &own));
            embed(&mut one, &job(case, &shared));
            let read = |name: &str| fs::read(case.path(name)).expect("output");
            assert!(read(&own) == read(&shared), "{number}");
            let listed = |out: &str| fs::read(job(case, out).rejects()).ok();
            assert!(listed(&own) == listed(&shared), "{number}");
            for name in [own, shared] {
                fs::remove_file(case.path(&name)).expect("remove");
                let _ = fs::remove_file(job(case, &name).rejects());
            }
        }
        // What was stopped is resumed.
        embed(&mut one, &job(&windows, "stopped.parquet"));
        embed(&mut engine(), &job(&windows, "own.parquet"));
        let read = |name: &str| fs::read(windows.path(name)).expect("output");
        assert!(read("stopped.parquet") == read("own.parquet"));
        for name in ["stopped.parquet", "own.parquet"] {
            fs::remove_file(windows.path(name)).expect("remove");
            let _ = fs::remove_file(job(&windows, name).rejects());
        }
    }
}

fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("events");
    let events = text.lines().map(serde_json::from_str);
    events.collect::<Result<_, _>>().expect("events")
}

#[test]
fn the_model_is_loaded_by_the_first_job_that_computes() {
    let (case, windows) = (Case::new(), in_windows());
    let outputs = Outputs {
        contacts: true,
        ..means()
    };
    let config = RunConfig {
        outputs,
        ..config(&case)
    };
    let mut engine = Engine::new(config.clone(), &Stop::default()).expect("an engine");
    embed(&mut engine, &job(&case, "first.parquet"));
    let mut engine = Engine::new(config, &Stop::default()).expect("an engine");
    let refused = job(&windows, "refused.parquet");
    let refused = engine.embed(&refused, &Stop::default(), &mut |_| {});
    let refused = refused.expect_err("contacts of stitched windows");
    assert_has(&refused.to_string(), "--windows separate");
    let log = case.path("events.jsonl");
    for out in ["first.parquet", "second.parquet", "third.parquet"] {
        let events = Some(log.clone());
        embed(
            &mut engine,
            &Job {
                events,
                ..job(&case, out)
            },
        );
    }
    let events = events(&log);
    let starts = events.iter().filter(|event| event["type"] == "run");
    let starts: Vec<(bool, &Value)> = starts
        .map(|event| (event["load_ms"].is_number(), &event["pid"]))
        .collect();
    // One job was refused, and the output of another was complete: both needed no model.
    assert_eq!(starts.len(), 2, "{starts:?}");
    assert_eq!(
        starts.iter().map(|start| start.0).collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(starts[0].1, starts[1].1);
}

#[test]
fn a_model_that_changes_after_it_was_described_ends_the_run() {
    let mut case = Case::new();
    let (tiny, copy) = (case.model.clone(), case.path("model"));
    fs::create_dir(&copy).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(tiny.join(name), copy.join(name)).expect("copy");
    }
    case.model = copy;
    let mut engine = Engine::new(config(&case), &Stop::default()).expect("an engine");
    let weights = case.model.join("model.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&weights, bytes).expect("write");
    let result = engine.embed(&job(&case, "e.parquet"), &Stop::default(), &mut |_| {});
    let error = result.expect_err("another model");
    assert_eq!(plmkit_kit::exit_of(&error).code(), 65);
    assert_has(
        &error.to_string(),
        "model: changed while this run loaded it",
    );
    assert!(!case.path("e.parquet").exists());
}

/// Writes the rows of an output as if they were computed with other options.
fn rewrite(path: &Path, changes: &[(&str, Value)]) -> Provenance {
    let mut reader = EmbeddingsReader::open(path).expect("open");
    let (layout, mut provenance) = (reader.layout().clone(), reader.provenance().clone());
    let rows: Vec<_> = std::iter::from_fn(|| reader.next_batch().expect("verified")).collect();
    for (name, value) in changes {
        provenance.options.insert((*name).to_owned(), value.clone());
    }
    fs::remove_file(path).expect("remove");
    let mut writer = EmbeddingsWriter::create(path, &layout).expect("create");
    for rows in rows {
        writer.write(&rows).expect("write");
    }
    writer.finish(&provenance).expect("finish");
    provenance
}

#[test]
fn what_is_not_asked_for_accepts_what_a_complete_output_has() {
    let case = Case::new();
    let out = case.path("e.parquet");
    run(case.embed("e.parquet").args(["--dtype", "int8"]));
    let bytes = fs::read(&out).expect("output");
    let complete = "already complete and verified";
    assert_has(&run(&mut case.embed("e.parquet")), complete);
    let what = "dtype was \"int8\" and is now \"f32\"";
    assert_fails(case.embed("e.parquet").args(["--dtype", "f32"]), 73, what);
    let max = ["--pool", "max"];
    assert_fails(case.embed("e.parquet").args(max), 73, "columns was");
    assert!(fs::read(&out).expect("output") == bytes);

    // As if a GPU had computed it, for a machine without one.
    let on_gpu = [
        ("device", json!("cuda")),
        ("dtype", json!("f16")),
        ("kernels", json!("cuda")),
    ];
    let found = rewrite(&out, &on_gpu);
    let bytes = fs::read(&out).expect("output");
    let embed = |options: &[&str]| {
        let mut embed = bin("gpu-embed");
        embed.arg(case.path("b.arrow")).arg("--out").arg(&out);
        embed.arg("--model").arg(&case.model).args(options);
        embed.env("CUDA_VISIBLE_DEVICES", "");
        embed
    };
    assert_has(&run(&mut embed(&[])), complete);
    assert_has(
        &run(&mut embed(&["--device", "auto", "--kernels", "portable"])),
        complete,
    );
    assert_fails(embed(&["--dtype", "f32"]), 73, "dtype was \"f16\"");
    assert_fails(
        embed(&["--device", "cpu"]),
        73,
        "device was \"cuda\" and is now \"cpu\"",
    );
    assert!(fs::read(&out).expect("output") == bytes);

    let differs = |compute: ComputeOptions, outputs: Outputs| {
        let config = RunConfig {
            compute,
            outputs,
            ..config(&case)
        };
        let engine = Engine::new(config, &Stop::default()).expect("an engine");
        engine.difference(&found)
    };
    let auto = ComputeOptions::default();
    let cpu = ComputeOptions {
        device: Device::Cpu,
        ..auto
    };
    let f32 = ComputeOptions {
        dtype: Some(Dtype::F32),
        ..auto
    };
    let portable = ComputeOptions {
        kernels: Kernels::Isa(plmkit_esm2::Isa::Portable),
        ..auto
    };
    let logits = Outputs {
        logits: true,
        ..means()
    };
    for (compute, outputs, expected) in [
        (auto, means(), None),
        (portable, means(), None),
        (cpu, means(), Some("device was")),
        (f32, means(), Some("dtype was")),
        (auto, logits, Some("columns was")),
    ] {
        let found = differs(compute, outputs);
        let begins = found
            .as_deref()
            .map(|found| found.starts_with(expected.unwrap_or("?")));
        assert_eq!(begins, expected.map(|_| true), "{found:?}");
    }
}

#[test]
fn a_half_done_output_of_another_type_is_refused() {
    let case = Case::new();
    let mut child = case.underway_with("e.parquet", &["--dtype", "int8"]);
    crate::common::case::kill(&mut child);
    let what = "an unfinished run of which dtype was";
    assert_fails(&mut case.embed("e.parquet"), 73, what);
    run(case.embed("e.parquet").args(["--dtype", "int8"]));
}

/// Damage on a disk changes no time of a file: what is loaded is hashed.
#[test]
fn a_file_of_digests_describes_a_model_and_does_not_vouch_for_its_weights() {
    let case = Case::new();
    let digests = case.path("digests.json");
    let engine = || {
        let config = RunConfig {
            digests: Some(digests.clone()),
            ..config(&case)
        };
        Engine::new(config, &Stop::default()).expect("an engine")
    };
    let first = engine();
    first.write_digests();
    let digest = &first.info().checkpoint.digest;
    let other = "0".repeat(32);
    let text = fs::read_to_string(&digests).expect("digests");
    let text = text.replace(digest, &other);
    let (entries, _) = text.rsplit_once(",\n  \"seal\"").expect("a seal");
    let sealed = ByteDigest::compute(entries.as_bytes());
    let known = format!("{entries},\n  \"seal\": \"{sealed}\"\n}}\n");
    fs::write(&digests, known).expect("write");

    let mut second = engine();
    assert_eq!(second.info().checkpoint.digest, other);
    let failed = second.embed(&job(&case, "b.parquet"), &Stop::default(), &mut |_| {});
    let failed = failed.expect_err("other weights").to_string();
    assert_has(&failed, "changed while this run loaded it");
    assert!(!case.path("b.parquet").exists());
}
