//! The weight file of a checkpoint as PyTorch saves it, from its archive to the tensors of a model.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plmkit_contract::Stop;
use plmkit_esm2::{Esm2, Setup};
use plmkit_fuzz::judged;
use tempfile::TempDir;

/// The smallest ESM-2, beside whose `config.json` the bytes are put.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let config =
        br#"{"model_type": "esm", "position_embedding_type": "rotary", "token_dropout": true,
        "vocab_size": 33, "num_hidden_layers": 1, "hidden_size": 2, "num_attention_heads": 1,
        "intermediate_size": 1, "layer_norm_eps": 1e-5}"#;
    fs::write(folder.path().join("config.json"), config).expect("memory");
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.path();
    fs::write(folder.join("pytorch_model.bin"), bytes).expect("memory");
    if let Some(model) = judged(Esm2::load(folder, Setup::default(), &Stop::default())) {
        assert_eq!((model.config().layers, model.config().hidden), (1, 2));
    }
});
