//! The relatives of ESM-2: their layouts, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plmkit_contract::Column;
use plmkit_esm2::{ComputeOptions, Dtype as Type, Esm2, Kernels};
use plmkit_esm2::{Isa, ModelConfig};
use plmkit_kit::{Exit, Failure, Stop};
use safetensors::Dtype;
use serde_json::json;

use crate::support::torch_file::torch_file;
use crate::support::{Pack, Part, Tiny, load, protein};

const LAYERS: usize = 2;
const HIDDEN: usize = 128;
const INNER: usize = 256;

/// Values from -1/2 to 1/2 that depend on the name only, times `scale`.
fn part(name: &str, shape: &[usize], scale: f32, middle: f32) -> Part {
    let mut state = name.bytes().fold(0x9E37_79B9_u64, |state, byte| {
        state.wrapping_mul(31) ^ u64::from(byte)
    });
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let values = (0..shape.iter().product()).map(|_| middle + scale * next());
    Part {
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        bytes: values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// ESMC with the names of transformers.
fn esmc() -> Tiny {
    let mut parts = BTreeMap::new();
    let mut add = |name: &str, shape: &[usize]| {
        let is_norm = name.contains("norm.weight");
        let scale = if name.contains("embed") { 4.0 } else { 0.3 };
        let middle = f32::from(u8::from(is_norm));
        parts.insert(name.to_owned(), part(name, shape, scale, middle));
    };
    add("esmc.embed_tokens.weight", &[64, HIDDEN]);
    for layer in 0..LAYERS {
        let mut of_layer =
            |name: &str, shape: &[usize]| add(&format!("esmc.layers.{layer}.{name}"), shape);
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            of_layer(&format!("{norm}.weight"), &[HIDDEN]);
            of_layer(&format!("{norm}.bias"), &[HIDDEN]);
        }
        for map in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            of_layer(&format!("self_attn.{map}.weight"), &[HIDDEN, HIDDEN]);
        }
        for norm in ["q_norm", "k_norm"] {
            of_layer(&format!("self_attn.{norm}.weight"), &[HIDDEN]);
        }
        for map in ["gate_proj", "up_proj"] {
            of_layer(&format!("mlp.{map}.weight"), &[INNER, HIDDEN]);
        }
        of_layer("mlp.down_proj.weight", &[HIDDEN, INNER]);
    }
    add("esmc.norm.weight", &[HIDDEN]);
    add("lm_head.dense.weight", &[HIDDEN, HIDDEN]);
    add("lm_head.dense.bias", &[HIDDEN]);
    add("lm_head.layer_norm.weight", &[HIDDEN]);
    add("lm_head.layer_norm.bias", &[HIDDEN]);
    add("lm_head.decoder.weight", &[64, HIDDEN]);
    add("lm_head.decoder.bias", &[64]);
    Tiny {
        config: json!({
            "model_type": "esmc", "vocab_size": 64, "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
            "num_attention_heads": 2, "intermediate_size": INNER, "hidden_act": "silu",
            "tie_word_embeddings": false,
        }),
        parts,
    }
}

/// The same with the names and the joined matrices of another layout: a joined name, and those of its parts in order.
fn joined(model: &Tiny, rename: impl Fn(&str) -> String, joins: &[(&str, &[&str])]) -> Tiny {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut left = model.parts.clone();
    for layer in 0..LAYERS {
        let of_layer = |name: &str| format!("esmc.layers.{layer}.{name}.weight");
        for (name, own) in joins {
            let own: Vec<Part> = own
                .iter()
                .map(|own| left.remove(&of_layer(own)).unwrap())
                .collect();
            let rows = own.iter().map(|part| part.shape[0]).sum();
            let whole = Part {
                dtype: Dtype::F32,
                shape: vec![rows, HIDDEN],
                bytes: own.into_iter().flat_map(|part| part.bytes).collect(),
            };
            parts.insert(name.replace('*', &layer.to_string()), whole);
        }
    }
    parts.extend(left.into_iter().map(|(name, part)| (rename(&name), part)));
    Tiny {
        config: model.config.clone(),
        parts,
    }
}

fn replaced(name: &str, table: &[(&str, &str)]) -> String {
    let renamed = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
    table.iter().fold(name.to_owned(), renamed)
}

const QKV: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
const GATE_AND_UP: &[&str] = &["mlp.gate_proj", "mlp.up_proj"];

/// The names of the first release, which was one file of PyTorch without a config.json.
fn first_release() -> Tiny {
    let rename = |name: &str| {
        let table = [
            ("esmc.norm", "transformer.norm"),
            ("esmc.embed_tokens", "embed"),
            ("esmc.layers", "transformer.blocks"),
            ("input_layernorm", "attn.layernorm_qkv.0"),
            ("self_attn.q_norm", "attn.q_ln"),
            ("self_attn.k_norm", "attn.k_ln"),
            ("self_attn.o_proj", "attn.out_proj"),
            ("post_attention_layernorm", "ffn.0"),
            ("mlp.down_proj", "ffn.3"),
            ("lm_head.dense", "sequence_head.0"),
            ("lm_head.layer_norm", "sequence_head.2"),
            ("lm_head.decoder", "sequence_head.3"),
        ];
        replaced(name, &table)
    };
    let joins = [
        ("transformer.blocks.*.attn.layernorm_qkv.1.weight", QKV),
        ("transformer.blocks.*.ffn.1.weight", GATE_AND_UP),
    ];
    joined(&esmc(), rename, &joins)
}

/// The names of the package esm with Transformer Engine, whose state is no tensor of the model.
fn transformer_engine() -> Tiny {
    let rename = |name: &str| {
        let table = [
            ("esmc.norm", "esmc.transformer.norm"),
            ("esmc.embed_tokens", "esmc.embed"),
            ("esmc.layers", "esmc.transformer.blocks"),
            ("input_layernorm.", "attn.layernorm_qkv.layer_norm_"),
            ("self_attn.q_norm", "attn.q_ln"),
            ("self_attn.k_norm", "attn.k_ln"),
            ("self_attn.o_proj", "attn.out_proj"),
            ("post_attention_layernorm.", "ffn.layer_norm_"),
            ("mlp.down_proj.", "ffn.fc2_"),
            ("lm_head.dense", "lm_head.0"),
            ("lm_head.layer_norm", "lm_head.2"),
            ("lm_head.decoder", "lm_head.3"),
        ];
        replaced(name, &table)
    };
    let joins = [
        ("esmc.transformer.blocks.*.attn.layernorm_qkv.weight", QKV),
        ("esmc.transformer.blocks.*.ffn.fc1_weight", GATE_AND_UP),
    ];
    let mut model = joined(&esmc(), rename, &joins);
    let state = Part {
        dtype: Dtype::U8,
        shape: vec![3],
        bytes: vec![1, 2, 3],
    };
    let name = "esmc.transformer.blocks.0.attn.layernorm_qkv._extra_state";
    model.parts.insert(name.to_owned(), state);
    model
}

/// Every layer, and the logits.
fn values(model: &Esm2) -> (Vec<Vec<f32>>, Vec<f32>) {
    let pack = Pack::of([protein("P81746").tokens.as_slice()]);
    let logits = model.embed(pack.batch(), &[Column::Logits], Type::F32, &Stop::default());
    (pack.layers(model), logits.unwrap().remove(0).to_vec())
}

#[test]
fn the_layouts_of_esmc_are_one_model() {
    let original = esmc().load().unwrap();
    let (layers, logits) = values(&original);
    let residues = protein("P81746").tokens.len() - 2;
    assert_eq!(logits.len(), residues * 64);
    assert!(layers.iter().flatten().all(|value| value.is_finite()));

    let first = tempfile::tempdir().unwrap();
    fs::create_dir_all(first.path().join("data/weights")).unwrap();
    let file = first.path().join("data/weights/esmc_2024_12_v0.pth");
    fs::write(&file, torch_file(&first_release().parts)).unwrap();
    // What some versions of it have, and which is not read.
    fs::write(first.path().join("config.json"), "{}").unwrap();
    let (engine, binary) = (transformer_engine(), torch_file(&esmc().parts));
    let (sharded, engine, binary) = (
        esmc().write_sharded(),
        engine.write(),
        esmc().write_bin(&binary),
    );
    let bare = esmc().renamed(|name| {
        let is_head = name.starts_with("lm_head");
        let encoder = name.strip_prefix("esmc.").map(str::to_owned);
        encoder.or_else(|| is_head.then(|| name.to_owned()))
    });
    let bare = bare.write();
    for folder in [
        first.path(),
        &file,
        sharded.path(),
        engine.path(),
        binary.path(),
        bare.path(),
    ] {
        let model = load(folder).unwrap();
        let found = &model.info().checkpoint;
        assert_eq!(found, &original.info().checkpoint, "{}", folder.display());
        assert_eq!(values(&model), (layers.clone(), logits.clone()));
    }
}

/// A `config.json` in the folder of the model, or beside its file, is held against the shapes.
#[test]
fn a_description_of_the_first_release_must_be_that_of_its_shapes() {
    let first = tempfile::tempdir().unwrap();
    let folders = ["", "data", "data/weights"].map(|folder| first.path().join(folder));
    fs::create_dir_all(&folders[2]).unwrap();
    let file = folders[2].join("esmc_2024_12_v0.pth");
    fs::write(&file, torch_file(&first_release().parts)).unwrap();
    let honest = json!({
        "model_type": "esmc", "d_model": HIDDEN, "hidden_size": HIDDEN, "n_layers": 2, "n_heads": 2, "vocab_size": 64,
        "pad_token_id": 1, "tie_word_embeddings": false, "transformers_weights": "esmc_2024_12_v0.pth",
        "rope_parameters": {"rope_theta": 10000.0},
    });
    for folder in &folders {
        let config = folder.join("config.json");
        fs::write(&config, honest.to_string()).unwrap();
        for model in [first.path(), &file] {
            load(model).unwrap();
        }
        for (key, value, what) in [
            (
                "model_type",
                json!("esm3"),
                "expected \"esmc\", found \"esm3\"",
            ),
            ("d_model", json!(960), "expected 128, found 960"),
            ("hidden_size", json!(960), "expected 128, found 960"),
            ("num_hidden_layers", json!(30), "expected 2, found 30"),
            ("n_heads", json!(15), "expected 2, found 15"),
            ("intermediate_size", json!(16), "expected 256, found 16"),
            (
                "layer_norm_eps",
                json!(1e-12),
                "expected 0.00001, found 1e-12",
            ),
            ("vocab_size", json!(33), "expected 64, found 33"),
            (
                "hidden_act",
                json!("gelu"),
                "expected \"silu\", found \"gelu\"",
            ),
            ("mlp_bias", json!(true), "expected false, found true"),
            ("mask_token_id", json!(4), "expected 32, found 4"),
            (
                "quantization_config",
                json!({}),
                "expected null, found an object",
            ),
            ("rope_scaling", json!(2.0), "expected null, found 2.0"),
            (
                "vocab_list",
                json!(["L"]),
                "token 0: expected '<cls>', found 'L'",
            ),
        ] {
            let mut changed = honest.clone();
            changed[key] = value;
            fs::write(&config, changed.to_string()).unwrap();
            for model in [first.path(), &file] {
                let error = refusal(model);
                let expected = format!("{}: key '{key}': {what}", config.display());
                assert_eq!(error, expected);
            }
        }
        fs::remove_file(config).unwrap();
    }
}

/// All instruction sets agree, and layers that are packed when they are computed are those that were packed before.
#[test]
fn kernels_of_esmc_agree() {
    let folder = esmc().write();
    let open = |isa, dtype| {
        let options = ComputeOptions {
            kernels: Kernels::Isa(isa),
            dtype: Some(dtype),
            ..ComputeOptions::default()
        };
        Esm2::load(folder.path(), options, &Stop::default()).unwrap()
    };
    let (expected, _) = values(&open(Isa::Portable, Type::F32));
    for isa in Isa::available() {
        let found = values(&open(isa, Type::F32));
        for (found, expected) in found.0.iter().flatten().zip(expected.iter().flatten()) {
            assert!(
                (found - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                "{isa}"
            );
        }
        let int8 = open(isa, Type::Int8);
        let streamed = int8.in_f32().unwrap().unwrap();
        assert!(values(&streamed) == found, "{isa}");
    }
}

fn digest(model: &Tiny) -> String {
    model.load().unwrap().info().checkpoint.digest.clone()
}

/// ESM-1b: as ESM-2, with a table of positions that is used.
fn esm_1b() -> Tiny {
    let mut model =
        Tiny::new().renamed(|name| (!name.contains("inv_freq")).then(|| name.to_owned()));
    model.config["position_embedding_type"] = json!("absolute");
    model.config["emb_layer_norm_before"] = json!(true);
    model.config["pad_token_id"] = json!(1);
    model.config["max_position_embeddings"] = json!(40);
    for (name, shape) in [
        ("embeddings.position_embeddings.weight", &[40, 64][..]),
        ("embeddings.layer_norm.weight", &[64]),
        ("embeddings.layer_norm.bias", &[64]),
    ] {
        let name = format!("esm.{name}");
        model
            .parts
            .insert(name.clone(), part(&name, shape, 1.0, 0.5));
    }
    model
}

#[test]
fn learned_positions_begin_at_the_third_row_and_end() {
    let model = esm_1b().load().unwrap();
    let embed = |model: &Esm2, tokens: &[u8]| {
        let pack = Pack::of([tokens]);
        model
            .embed(
                pack.batch(),
                &[Column::Residues(4)],
                Type::F32,
                &Stop::default(),
            )
            .map(|values| values[0].to_vec())
    };
    let tokens = |count: usize| [vec![0], vec![5; count], vec![2]].concat();
    // Rows of no position do not matter, and those of all others do.
    for (row, matters) in [(0, false), (1, false), (2, true), (39, true)] {
        let mut changed = esm_1b();
        let table = changed
            .parts
            .get_mut("esm.embeddings.position_embeddings.weight");
        table.unwrap().bytes[row * 64 * 4 + 2] ^= 0x40;
        let changed = changed.load().unwrap();
        let (found, expected) = (embed(&changed, &tokens(36)), embed(&model, &tokens(36)));
        assert_eq!(found.unwrap() != expected.unwrap(), matters, "{row}");
    }
    let error = embed(&model, &tokens(37)).unwrap_err();
    assert_eq!(error.exit(), Exit::Data);
    assert!(
        error
            .to_string()
            .contains("at most 36 residues, found a row of 37"),
        "{error}"
    );
    assert!(error.to_string().contains("--max-residues 36"), "{error}");
}

/// The same file is another model if the description is another.
#[test]
fn the_digest_is_that_of_the_description_too() {
    let (learned, mut rotary) = (esm_1b(), esm_1b());
    rotary.config["position_embedding_type"] = json!("rotary");
    assert_ne!(digest(&learned), digest(&rotary));
    // A table that is not used does not matter.
    let digest_of_rotary = digest(&rotary);
    rotary
        .parts
        .remove("esm.embeddings.position_embeddings.weight");
    assert_eq!(digest(&rotary), digest_of_rotary);
    let mut bare = rotary.clone();
    bare.config["emb_layer_norm_before"] = json!(false);
    for kind in ["weight", "bias"] {
        bare.parts
            .remove(&format!("esm.embeddings.layer_norm.{kind}"));
    }
    assert_ne!(digest(&bare), digest_of_rotary);
}

fn refusal(model: &Path) -> String {
    let error = load(model).unwrap_err();
    assert_eq!(error.exit(), Exit::Data, "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    error.to_string()
}

#[test]
fn adapters_that_are_not_merged_are_named() {
    for name in [
        "base_model.model.esm.encoder.layer.0.attention.self.query.lora_A.default.weight",
        "base_model.model.esm.encoder.layer.0.attention.self.query.base_layer.weight",
        "classifier.modules_to_save.default.weight",
        "classifier.original_module.weight",
    ] {
        let mut model = Tiny::new();
        model
            .parts
            .insert(name.to_owned(), part(name, &[8, 64], 1.0, 0.0));
        let error = refusal(model.write().path());
        assert!(error.contains(&format!("tensor '{name}'")), "{error}");
        assert!(error.contains("merge_and_unload()"), "{error}");
    }
}

/// A change of ESMC, and why it is refused.
type Refused<'a> = (&'a dyn Fn(&mut Tiny), &'a str);

#[test]
fn tensors_that_do_not_fit_the_description_are_refused() {
    let refused: [Refused<'_>; 5] = [
        (
            &|model| {
                let name = "esmc.norm.bias";
                model
                    .parts
                    .insert(name.to_owned(), part(name, &[HIDDEN], 1.0, 0.0));
            },
            "missing 0, unexpected 1 ('encoder.emb_layer_norm_after.bias')",
        ),
        (
            &|model| _ = model.parts.remove("esmc.layers.1.self_attn.k_norm.weight"),
            "missing 1 ('encoder.layer.1.attention.self.key_norm.weight')",
        ),
        (
            &|model| model.config["intermediate_size"] = json!(512),
            "intermediate.gate.weight': expected shape [512, 128], found [256, 128]",
        ),
        (
            &|model| model.config["rope_parameters"] = json!({"rope_type": "yarn"}),
            "key 'rope_parameters': key 'rope_type': expected \"default\", found \"yarn\"",
        ),
        (
            &|model| *model = model.renamed(|name| Some(format!("model.{name}"))),
            "all names begin with 'model.': save the model again without that prefix",
        ),
    ];
    for (change, what) in refused {
        let mut model = esmc();
        change(&mut model);
        let error = refusal(model.write().path());
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn esmc_has_no_contact_head_and_its_own_decoder() {
    let (model, pack) = (esmc().load().unwrap(), Pack::of([[0, 5, 6, 2].as_slice()]));
    let contacts = model.embed(
        pack.batch(),
        &[Column::Contacts],
        Type::F32,
        &Stop::default(),
    );
    let error = contacts.unwrap_err();
    assert_eq!(error.exit(), Exit::Data);
    assert!(error.to_string().contains("has no contact head"), "{error}");
    // Without its decoder there is no head: the word embeddings are none.
    let mut model = esmc();
    model.parts.remove("lm_head.decoder.weight");
    let logits = model.load().unwrap();
    let logits = logits.embed(pack.batch(), &[Column::Logits], Type::F32, &Stop::default());
    let error = logits.unwrap_err().to_string();
    assert!(
        error.ends_with("missing 1 ('lm_head.decoder.weight')"),
        "{error}"
    );
}

#[test]
fn a_configuration_is_the_same_after_a_trip_through_json() {
    for model in [esmc(), esm_1b(), Tiny::new()] {
        let config = ModelConfig::from_json(model.config.to_string().as_bytes()).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), config);
    }
}
