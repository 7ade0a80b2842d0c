//! One model in the forms in which checkpoints come.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use half::{bf16, f16};
use plmkit_contract::{Column, seal};
use plmkit_esm2::{
    ComputeOptions, Dtype as Type, Esm2, EsmError, Head, LoadTimes, ModelInfo, describe,
    set_threads,
};
use plmkit_kit::{Exit, Failure, Stop};
use safetensors::Dtype;

use crate::support::torch_file::{large_archive, torch_file, torch_file_as};
use crate::support::{Pack, Part, Tiny, load, model_tiny, protein, test_data};

/// The digest of the language-model head.
fn head_digest(model: &Esm2) -> Result<String, EsmError> {
    let heads = model
        .info()
        .heads_for(Path::new("model"), &[Column::Logits]);
    Ok(heads?[&Head::LanguageModel].to_owned())
}

fn digest(model: &Path) -> String {
    load(model).unwrap().info().checkpoint.digest.clone()
}

fn layers(model: &Esm2) -> Vec<Vec<f32>> {
    Pack::of([protein("P81746").tokens.as_slice()]).layers(model)
}

fn described(model: &Path, known: &str) -> (ModelInfo, String) {
    describe(model, ComputeOptions::default(), known, &Stop::default()).unwrap()
}

#[test]
fn a_description_is_that_of_the_loaded_model() {
    for name in ["", "-1b", "-1v", "-bin", "-esmc", "-esmc-pth"] {
        let model = test_data(&format!("model-tiny{name}"));
        let mut loaded = load(&model).unwrap().info().clone();
        loaded.load_times = LoadTimes::default();
        let (hashed, text) = described(&model, "");
        assert_eq!(hashed, loaded, "{name}");
        assert_eq!(described(&model, &text), (hashed, text), "{name}");
    }
}

/// A text with another digest, which no file has, shows whether files are hashed.
#[test]
fn a_description_hashes_what_has_changed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path();
    for name in ["config.json", "model.safetensors"] {
        let bytes = fs::read(test_data("model-tiny").join(name)).unwrap();
        fs::write(model.join(name), bytes).unwrap();
    }
    let (expected, text) = described(model, "");
    let digest = &expected.checkpoint.digest;
    let told = |text: &str| {
        let other = "0".repeat(32);
        let mut json: serde_json::Value =
            serde_json::from_str(&text.replace(digest, &other)).unwrap();
        json.as_object_mut().unwrap().remove("seal");
        (seal(&json), other)
    };
    let (known, other) = told(&text);
    assert_eq!(described(model, &known).0.checkpoint.digest, other);
    let load = |known: &str| {
        let options = ComputeOptions::default();
        let model = Esm2::load_known(model, options, known, &Stop::default()).unwrap();
        model.info().checkpoint.digest.clone()
    };
    assert_eq!((load(&known), &load("")), (other, digest));

    let mut damaged = known.clone().into_bytes();
    damaged[20] ^= 1;
    let damaged = String::from_utf8_lossy(&damaged);
    let unsealed = text.replace(digest, &"0".repeat(32));
    let earlier = told(&text.replace(env!("CARGO_PKG_VERSION"), "0.0.1")).0;
    for nothing in [
        "",
        "{}",
        "[1",
        &known[..known.len() / 2],
        &damaged,
        &unsealed,
        &earlier,
    ] {
        assert_eq!(described(model, nothing), (expected.clone(), text.clone()));
    }

    // The same bytes, size and time of writing: another time of change.
    for name in ["config.json", "model.safetensors"] {
        let (known, _) = told(&described(model, "").1);
        let path = model.join(name);
        let written = path.metadata().unwrap().modified().unwrap();
        std::thread::sleep(Duration::from_millis(20)); // the clock of the file system may be coarse
        fs::write(&path, fs::read(&path).unwrap()).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(written).unwrap();
        assert_eq!(
            &described(model, &known).0.checkpoint.digest,
            digest,
            "{name}"
        );
    }
}

/// As transformers 5 saves a model that it made itself, and one that it loaded from an `EsmModel`.
#[test]
fn names_do_not_matter() {
    let tiny = Tiny::new();
    let frequencies = |name: &str| {
        let shared = name.replace("layer.0", "layer.*");
        if name.contains("inv_freq") {
            (shared != name).then_some(shared)
        } else {
            Some(name.to_owned())
        }
    };
    let shared = tiny.renamed(frequencies);
    let old_norms = shared.renamed(|name| {
        let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
        Some(name.replace("LayerNorm.bias", "LayerNorm.beta"))
    });
    let encoder = tiny.renamed(|name| name.strip_prefix("esm.").map(str::to_owned));
    assert!(shared.parts.len() < tiny.parts.len() && encoder.parts.len() < tiny.parts.len());

    let original = model_tiny();
    for other in [shared, old_norms, encoder] {
        let other = other.load().unwrap();
        assert_eq!(
            other.info().checkpoint.digest,
            original.info().checkpoint.digest
        );
        assert_eq!(layers(&other), layers(&original));
    }
}

#[test]
fn several_files_are_the_same_as_one() {
    let (original, folder) = (model_tiny(), Tiny::new().write_sharded());
    let sharded = load(folder.path()).unwrap();
    assert_eq!(
        sharded.info().checkpoint.digest,
        original.info().checkpoint.digest
    );
    assert_eq!(layers(&sharded), layers(&original));
}

#[test]
fn half_precision_weights_are_widened_without_loss() {
    let narrow = |dtype: Dtype, bytes: fn(f32) -> [u8; 2], rounded: fn(f32) -> f32| {
        let (mut stored, mut expected) = (Tiny::new(), Tiny::new());
        for part in stored.parts.values_mut() {
            let bytes = part.values().into_iter().flat_map(bytes).collect();
            *part = Part {
                dtype,
                bytes,
                shape: part.shape.clone(),
            };
        }
        for part in expected.parts.values_mut() {
            part.bytes = part
                .values()
                .into_iter()
                .flat_map(|value| rounded(value).to_le_bytes())
                .collect();
        }
        let (stored, expected) = (stored.load().unwrap(), expected.load().unwrap());
        assert_eq!(layers(&stored), layers(&expected), "{dtype}");
        assert_ne!(
            stored.info().checkpoint.digest,
            expected.info().checkpoint.digest,
            "{dtype}"
        );
    };
    narrow(
        Dtype::F16,
        |value| f16::from_f32(value).to_le_bytes(),
        |value| f16::from_f32(value).to_f32(),
    );
    narrow(
        Dtype::BF16,
        |value| bf16::from_f32(value).to_le_bytes(),
        |value| bf16::from_f32(value).to_f32(),
    );
}

/// The same values in a file of PyTorch are the same model.
#[test]
fn a_file_of_pytorch_is_the_same_as_one_of_safetensors() {
    let tiny = Tiny::new();
    for tiny in [tiny.narrowed(), tiny] {
        let expected = tiny.load().unwrap();
        for bytes in [
            torch_file(&tiny.parts),
            torch_file_as(&tiny.parts, large_archive),
        ] {
            let model = load(tiny.write_bin(&bytes).path()).unwrap();
            assert_eq!(
                model.info().checkpoint.digest,
                expected.info().checkpoint.digest
            );
            assert_eq!(layers(&model), layers(&expected));
        }
    }
}

/// Two files of `torch.save` with an index: shared storages, a transposed matrix, integers and `_metadata`.
#[test]
fn what_pytorch_itself_writes() {
    let model = load(&test_data("model-tiny-bin")).unwrap();
    let expected = Tiny::new().narrowed().load().unwrap();
    assert_eq!(
        model.info().checkpoint.digest,
        expected.info().checkpoint.digest
    );
    assert_eq!(layers(&model), layers(&expected));
}

#[test]
fn a_model_is_named_by_its_weights_as_well() {
    let (tiny, sharded) = (test_data("model-tiny"), test_data("model-tiny-bin"));
    assert_eq!(digest(&tiny.join("model.safetensors")), digest(&tiny));
    assert_eq!(
        digest(&sharded.join("pytorch_model.bin.index.json")),
        digest(&sharded)
    );
    let folder = Tiny::new().write_bin(&torch_file(&Tiny::new().parts));
    assert_eq!(
        digest(&folder.path().join("pytorch_model.bin")),
        digest(&tiny)
    );
}

#[test]
fn safetensors_come_first() {
    let tiny = Tiny::new();
    let folder = tiny.write();
    fs::write(folder.path().join("pytorch_model.bin"), b"anything").unwrap();
    assert_eq!(digest(folder.path()), digest(&test_data("model-tiny")));
}

/// The digest stands for the vectors: it changes with whatever they depend on, and with nothing else.
#[test]
fn the_digest_is_that_of_the_encoder() {
    let tiny = Tiny::new();
    let digest = |change: &dyn Fn(&mut Tiny)| {
        let mut changed = tiny.clone();
        change(&mut changed);
        changed.load().unwrap().info().checkpoint.digest.clone()
    };
    let flip = |name: &'static str| {
        move |tiny: &mut Tiny| {
            let part = tiny.parts.get_mut(name).unwrap();
            part.bytes[0] ^= 1;
        }
    };
    let original = digest(&|_| ());
    assert_eq!(original.len(), 32);
    assert!(original.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_eq!(digest(&flip("lm_head.dense.weight")), original);
    assert_eq!(
        digest(&|tiny| tiny.config["use_cache"] = false.into()),
        original
    );

    for name in [
        "esm.embeddings.word_embeddings.weight",
        "esm.encoder.layer.3.output.dense.bias",
        "esm.encoder.layer.2.attention.self.rotary_embeddings.inv_freq",
        "esm.encoder.emb_layer_norm_after.weight",
    ] {
        assert_ne!(digest(&flip(name)), original, "{name}");
    }
    assert_ne!(
        digest(&|tiny| tiny.config["layer_norm_eps"] = 1e-12.into()),
        original
    );
    assert_ne!(
        digest(&|tiny| tiny.config["token_dropout"] = false.into()),
        original
    );
}

/// A change of the tiny model, and why it is refused.
type Refused<'a> = (&'a dyn Fn(&mut Tiny), &'a str);

/// As transformers 5: a stored decoder is used, unless it is the word embeddings.
#[test]
fn the_decoder_of_the_language_model() {
    let tiny = Tiny::new();
    let words = tiny.parts["esm.embeddings.word_embeddings.weight"].clone();
    let bias = tiny.parts["lm_head.bias"].clone();
    let doubled = |part: &Part| {
        let mut part = part.clone();
        let values = part.values().into_iter();
        part.bytes = values
            .flat_map(|value| (2.0 * value).to_le_bytes())
            .collect();
        part
    };
    let load = |change: &dyn Fn(&mut Tiny)| {
        let mut changed = tiny.clone();
        change(&mut changed);
        changed.load().unwrap()
    };
    let decoder = "lm_head.decoder.weight";
    let head = |model: &Esm2| head_digest(model).unwrap();
    let logits = |model: &Esm2| {
        let pack = Pack::of([protein("P81746").tokens.as_slice()]);
        model
            .embed(pack.batch(), &[Column::Logits], Type::F32, &Stop::default())
            .unwrap()
            .remove(0)
            .to_vec()
    };
    let original = model_tiny();
    let same: [&dyn Fn(&mut Tiny); 4] = [
        &|tiny| _ = tiny.parts.insert(decoder.to_owned(), words.clone()),
        &|tiny| {
            tiny.config["tie_word_embeddings"] = false.into();
            tiny.parts.insert(decoder.to_owned(), words.clone());
        },
        &|tiny| {
            _ = tiny
                .parts
                .insert("lm_head.decoder.bias".to_owned(), bias.clone());
        },
        &|tiny| {
            let bias = tiny.parts.remove("lm_head.bias").unwrap();
            tiny.parts.insert("lm_head.decoder.bias".to_owned(), bias);
        },
    ];
    for change in same {
        let model = load(change);
        assert_eq!(head(&model), head(&original));
        assert_eq!(logits(&model), logits(&original));
    }
    for tied in [true, false] {
        let model = load(&|tiny| {
            tiny.config["tie_word_embeddings"] = tied.into();
            tiny.parts.insert(decoder.to_owned(), doubled(&words));
        });
        assert_eq!(
            model.info().checkpoint.digest,
            original.info().checkpoint.digest
        );
        assert_ne!(head(&model), head(&original));
        let bias = bias.values().into_iter().cycle();
        let pairs = std::iter::zip(logits(&model), logits(&original)).zip(bias);
        for ((found, once), bias) in pairs {
            let expected = 2.0 * (once - bias) + bias;
            assert!(
                (found - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                "{found} {expected}"
            );
        }
    }
    let refused: [Refused; 2] = [
        (
            &|tiny| {
                _ = tiny
                    .parts
                    .insert("lm_head.decoder.bias".to_owned(), doubled(&bias));
            },
            "has no language-model head; expected one bias, found 'lm_head.bias' and another",
        ),
        (
            &|tiny| tiny.config["tie_word_embeddings"] = false.into(),
            "has no language-model head; missing 1 ('lm_head.decoder.weight')",
        ),
    ];
    for (change, what) in refused {
        let model = load(change);
        assert_eq!(
            model.info().checkpoint.digest,
            original.info().checkpoint.digest
        );
        let error = head_digest(&model).unwrap_err();
        assert_eq!(error.exit(), Exit::Data);
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Frequencies may differ from layer to layer; each layer turns by its own.
#[test]
fn each_layer_has_its_own_frequencies() {
    let mut tiny = Tiny::new();
    let name = "esm.encoder.layer.1.attention.self.rotary_embeddings.inv_freq";
    tiny.parts.get_mut(name).unwrap().bytes.fill(0);
    let (changed, original) = (layers(&tiny.load().unwrap()), layers(&model_tiny()));
    assert_eq!(changed[1], original[1]);
    assert_ne!(changed[2], original[2]);

    // With layer 0 turned the same way the two differ from the first on: layer 1 is not the last to be read.
    let name = "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq";
    tiny.parts.get_mut(name).unwrap().bytes.fill(0);
    assert_ne!(layers(&tiny.load().unwrap())[1], original[1]);
}

#[test]
fn a_stop_ends_the_loading() {
    let stop = Stop::default();
    stop.request();
    let error = Esm2::load(
        &test_data("model-tiny"),
        plmkit_esm2::ComputeOptions::default(),
        &stop,
    )
    .unwrap_err();
    assert!(matches!(error, EsmError::Stopped), "{error}");
}

#[test]
fn threads_share_the_loading_and_change_nothing() {
    let before = model_tiny();
    set_threads(NonZeroUsize::new(3).unwrap());
    let after = model_tiny();
    set_threads(NonZeroUsize::MIN);
    assert_eq!(
        after.info().checkpoint.digest,
        before.info().checkpoint.digest
    );
    assert_eq!(layers(&after), layers(&before));
    assert!(
        after.info().load_times.all > Duration::ZERO && after.info().load_times.compiled.is_none()
    );
}

/// What int8 is compared with is the model in f32, to the bit, and in each of its layers.
#[test]
fn layers_that_are_read_when_they_are_computed_are_the_same() {
    let f32 = model_tiny();
    let int8 = ComputeOptions {
        dtype: Some(Type::Int8),
        ..ComputeOptions::default()
    };
    let int8 = Esm2::load(&test_data("model-tiny"), int8, &Stop::default()).unwrap();
    let by_layer = int8.in_f32().unwrap().unwrap();
    assert_eq!(by_layer.info().dtype, Type::F32);
    assert_eq!(by_layer.info().kernels, f32.info().kernels);
    assert_eq!(layers(&by_layer), layers(&f32));
    assert_ne!(layers(&int8), layers(&f32));
}

/// Every parameter of the layers is rounded to bfloat16 where they are computed in it, biases too.
#[test]
fn in_bfloat16_weights_and_biases_are_rounded() {
    let bf16 = ComputeOptions {
        dtype: Some(Type::Bf16),
        ..ComputeOptions::default()
    };
    let load = |folder: &Path| Esm2::load(folder, bf16, &Stop::default()).unwrap();
    let mut rounded = Tiny::new();
    let dense = |name: &str| {
        let dense = [".dense.", ".query.", ".key.", ".value."];
        name.contains("encoder.layer") && dense.iter().any(|dense| name.contains(dense))
    };
    for (_, part) in rounded.parts.iter_mut().filter(|(name, _)| dense(name)) {
        let values = part.values().into_iter();
        let values = values.map(|value| bf16::from_f32(value).to_f32());
        part.bytes = values.flat_map(f32::to_le_bytes).collect();
    }
    let rounded = rounded.write();
    let original = load(&test_data("model-tiny"));
    assert_eq!(layers(&load(rounded.path())), layers(&original));
}
