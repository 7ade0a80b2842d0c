//! `config.json` of a checkpoint, as a model and as the sizes of an estimate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_contract::ModelShape;
use plmkit_esm2::ModelConfig;

fuzz_target!(|bytes: &[u8]| {
    match ModelConfig::from_json(bytes) {
        Ok(config) => assert_eq!(config.head_dim() * config.heads, config.hidden),
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    }
    if let Ok(shape) = ModelShape::from_json(bytes) {
        assert!(shape.flops_per_token() > 0 && shape.flops_per_pair() > 0);
    }
});
