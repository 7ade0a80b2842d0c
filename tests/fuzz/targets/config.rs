//! `config.json` of a checkpoint.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_esm2::ModelConfig;

fuzz_target!(|bytes: &[u8]| {
    match ModelConfig::from_json(bytes) {
        Ok(config) => {
            assert_eq!(config.head_dim() * config.heads, config.hidden);
            let shape = config.shape();
            assert!(shape.flops_per_token() > 0 && shape.flops_per_pair() > 0);
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    }
});
