//! `config.json` files that are read, and others that are refused.

use serde_json::{Value, json};

use super::*;

fn hub() -> Value {
    json!({
        "model_type": "esm", "position_embedding_type": "rotary", "vocab_size": 33, "mask_token_id": 32,
        "hidden_act": "gelu", "emb_layer_norm_before": false, "is_folding_model": false,
        "esmfold_config": null, "vocab_list": null, "max_position_embeddings": 1026,
        "num_hidden_layers": 33, "hidden_size": 1280, "num_attention_heads": 20,
        "intermediate_size": 5120, "layer_norm_eps": 1e-5, "token_dropout": true,
    })
}

fn with(key: &str, value: Value) -> Result<ModelConfig, String> {
    let mut config = hub();
    config[key] = value;
    ModelConfig::from_json(config.to_string().as_bytes())
}

#[test]
fn the_hub_config_of_650m() {
    let config = ModelConfig::from_json(hub().to_string().as_bytes()).unwrap();
    assert_eq!((config.layers, config.hidden, config.heads), (33, 1280, 20));
    assert_eq!((config.head_dim(), config.intermediate), (64, 5120));
    let published = ModelShape::published("facebook/esm2_t33_650M_UR50D");
    assert_eq!(Some(config.shape()), published);
}

#[test]
fn entries_that_some_checkpoints_lack_have_defaults() {
    for key in [
        "emb_layer_norm_before",
        "mask_token_id",
        "hidden_act",
        "is_folding_model",
    ] {
        assert!(with(key, Value::Null).is_ok(), "{key}");
    }
    assert!(with("rope_theta", json!(10000)).is_ok());
}

#[test]
fn a_rotation_that_is_not_the_default_is_refused() {
    let default = json!({"rope_type": "default", "rope_theta": 10000.0, "factor": null});
    for (key, value) in [
        ("rope_parameters", default),
        ("rope_parameters", json!(null)),
        ("rope_scaling", json!({"type": "default"})),
        ("partial_rotary_factor", json!(1)),
        ("is_decoder", json!(false)),
    ] {
        assert_eq!(with(key, value), with("model_type", json!("esm")), "{key}");
    }
    for (key, value, text) in [
        (
            "rope_parameters",
            json!({"rope_type": "yarn", "factor": 4.0}),
            r#"key 'rope_type': expected "default", found "yarn""#,
        ),
        (
            "rope_parameters",
            json!({"factor": 4.0}),
            "key 'factor': expected null, found 4.0",
        ),
        (
            "rope_parameters",
            json!({"rope_theta": 1e6}),
            "key 'rope_theta': expected 10000.0, found 1000000.0",
        ),
        (
            "rope_parameters",
            json!({"partial_rotary_factor": 0.5}),
            "expected 1.0, found 0.5",
        ),
        (
            "rope_scaling",
            json!({"type": "linear"}),
            r#"key 'type': expected "default", found "linear""#,
        ),
        ("rope_scaling", json!(2.0), "expected null, found 2.0"),
        (
            "partial_rotary_factor",
            json!(0.5),
            "expected 1.0, found 0.5",
        ),
        ("is_decoder", json!(true), "expected false, found true"),
    ] {
        let error = with(key, value).unwrap_err();
        assert!(error.starts_with(&format!("key '{key}': ")), "{error}");
        assert!(error.ends_with(text), "{error}");
    }
}

#[test]
fn learned_positions_limit_the_tokens() {
    let mut config = hub();
    config["position_embedding_type"] = json!("absolute");
    config["emb_layer_norm_before"] = json!(true);
    let read = |config: &Value| ModelConfig::from_json(config.to_string().as_bytes());
    let error = read(&config).unwrap_err();
    assert_eq!(error, "key 'pad_token_id': expected 1, found nothing");
    config["pad_token_id"] = json!(1);
    let esm_1b = read(&config).unwrap();
    assert_eq!((esm_1b.longest(), esm_1b.is_rotary()), (Some(1024), false));
    let architecture = Architecture {
        positions: Positions::Learned {
            first: 2,
            longest: 1024,
        },
        embedding_norm: true,
        ..Architecture::ESM2
    };
    assert_eq!(esm_1b.architecture, architecture);
}

fn esmc() -> Value {
    json!({
        "model_type": "esmc", "vocab_size": 64, "num_hidden_layers": 30, "hidden_size": 960,
        "num_attention_heads": 15, "intermediate_size": 2560, "hidden_act": "silu", "head_dim": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "mlp_bias": false,
    })
}

#[test]
fn esmc_by_its_names_and_by_those_of_the_first_checkpoints() {
    let read = |config: &Value| ModelConfig::from_json(config.to_string().as_bytes());
    let config = read(&esmc()).unwrap();
    let published = ModelShape::published("biohub/ESMC-300M");
    assert_eq!(Some(config.shape()), published);
    assert!((config.branch_scale() - (36.0_f64 / 30.0).sqrt()).abs() < 1e-15);
    let tokens = config.logit_tokens();
    assert_eq!(
        (tokens[31], tokens[32], tokens[33]),
        (Some("|"), Some("<mask>"), None)
    );
    let earlier = json!({
        "model_type": "esmc", "vocab_size": 64, "n_layers": 30, "d_model": 960, "n_heads": 15,
    });
    assert_eq!(read(&earlier), Ok(config));
    for (key, value, text) in [
        ("vocab_size", json!(33), "expected 64, found 33"),
        ("mlp_bias", json!(true), "expected false, found true"),
        ("num_key_value_heads", json!(3), "expected 15, found 3"),
        ("n_layers", json!(36), "expected 30, found 36"),
        (
            "layer_norm_eps",
            json!(1e-12),
            "expected 0.00001, found 1e-12",
        ),
        ("pad_token_id", json!(0), "expected 1, found 0"),
        (
            "intermediate_size",
            json!(2561),
            "expected a multiple of 16, found 2561",
        ),
        (
            "rope_parameters",
            json!({"rope_theta": 1e6}),
            "expected 10000.0, found 1000000.0",
        ),
    ] {
        let mut changed = esmc();
        changed[key] = value;
        let error = read(&changed).unwrap_err();
        assert!(
            error.starts_with(&format!("key '{key}': ")) && error.ends_with(text),
            "{error}"
        );
    }
}

#[test]
fn a_decoder_that_is_not_tied_is_said() {
    for (tied, value) in [
        (true, json!(null)),
        (true, json!(true)),
        (false, json!(false)),
    ] {
        let config = with("tie_word_embeddings", value).unwrap();
        assert_eq!(config.tied_decoder, tied);
    }
}

#[test]
fn a_wrong_entry_is_named_with_what_was_expected() {
    let none = Value::Null;
    for (key, value, text) in [
        (
            "model_type",
            json!("bert"),
            r#"expected "esm" or "esmc", found "bert""#,
        ),
        (
            "rope_theta",
            json!(1e6),
            "expected 10000.0, found 1000000.0",
        ),
        ("vocab_size", json!(32), "expected 33, found 32"),
        (
            "position_embedding_type",
            none,
            r#"expected "rotary" or "absolute", found nothing"#,
        ),
        (
            "hidden_size",
            json!("320"),
            "expected a whole number from 2 to 65536, found \"320\"",
        ),
        ("hidden_size", json!(1u64 << 40), "found 1099511627776"),
        (
            "num_hidden_layers",
            json!(0),
            "expected a whole number from 1 to 1024, found 0",
        ),
        (
            "layer_norm_eps",
            json!(0),
            "expected a number above 0, at most 0.1, found 0",
        ),
        (
            "token_dropout",
            json!([]),
            "expected true or false, found an array",
        ),
        ("pad_token_id", json!(0), "expected 1, found 0"),
        ("eos_token_id", json!(1), "expected 2, found 1"),
        ("mask_token_id", json!(4), "expected 32, found 4"),
        (
            "quantization_config",
            json!({"load_in_8bit": true}),
            "expected null, found an object",
        ),
        (
            "num_attention_heads",
            json!(21),
            "an even number of channels for each of 21 heads, found 1280",
        ),
    ] {
        let error = with(key, value).unwrap_err();
        assert!(error.contains(text), "{error}");
        let named = if key == "num_attention_heads" {
            "hidden_size"
        } else {
            key
        };
        assert!(error.starts_with(&format!("key '{named}': ")), "{error}");
    }
    let error = with("hidden_act", json!("ge\u{85}\u{7f}lu")).unwrap_err();
    assert!(!error.contains(char::is_control), "{error}");
    for text in ["[]", "{"] {
        let error = ModelConfig::from_json(text.as_bytes()).unwrap_err();
        assert!(error.starts_with("not a JSON object: "), "{error}");
    }
}

#[test]
fn shapes_of_no_possible_model_have_no_configuration() {
    let of = |hidden: usize, rows: usize, layers: usize| {
        let names = (0..layers).map(|layer| format!("transformer.blocks.{layer}.ffn.1.weight"));
        let names: Vec<String> = names.collect();
        let (words, ffn) = ([64, hidden], [rows, hidden]);
        let mut tensors: Vec<(&str, &[usize])> = vec![("embed.weight", &words)];
        tensors.extend(names.iter().map(|name| (name.as_str(), &ffn[..])));
        from_shapes(&tensors)
    };
    let config = of(960, 5120, 2).unwrap();
    let sizes = [config.layers, config.hidden, config.intermediate];
    assert_eq!(sizes, [2, 960, 2560]);
    for (hidden, rows, layers) in [
        (960, 0, 2),
        (0, 5120, 2),
        (1 << 62, 5120, 2),
        (960, 1 << 62, 2),
        (960, 5120, 1025),
    ] {
        assert_eq!(of(hidden, rows, layers), None, "{hidden} {rows} {layers}");
    }
}
