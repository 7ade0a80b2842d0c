//! Folders that are no checkpoint: one clear line each, and the right exit code.

use std::fs;
use std::path::Path;

use plmkit_contract::{Exit, Failure};
use plmkit_esm2::EsmError;
use safetensors::Dtype;

use crate::support::{Tiny, load};

/// That loading fails with this exit code, in one line that begins with the folder and says `text`.
fn refused(folder: &Path, exit: Exit, text: &str) {
    let error: EsmError = load(folder).unwrap_err();
    let line = error.to_string();
    assert_eq!(error.exit(), exit, "{line}");
    assert!(line.starts_with(folder.to_str().unwrap()), "{line}");
    assert!(line.contains(text), "expected '{text}' in: {line}");
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn files_that_are_not_there() {
    let folder = Tiny::new().write();
    refused(
        &folder.path().join("absent"),
        Exit::NoInput,
        "cannot open: no such file",
    );
    refused(
        &folder.path().join("config.json"),
        Exit::NoInput,
        "not a directory",
    );

    fs::remove_file(folder.path().join("config.json")).unwrap();
    refused(
        folder.path(),
        Exit::NoInput,
        "config.json: cannot open: no such file",
    );

    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    refused(
        folder.path(),
        Exit::NoInput,
        "expected model.safetensors or model.safetensors.index.json, found neither",
    );

    fs::write(folder.path().join("pytorch_model.bin"), b"").unwrap();
    refused(
        folder.path(),
        Exit::NoInput,
        "found pytorch_model.bin, which is not read: save the model again",
    );

    let sharded = Tiny::new().write_sharded();
    fs::remove_file(sharded.path().join("model-00002-of-00002.safetensors")).unwrap();
    refused(
        sharded.path(),
        Exit::NoInput,
        "model-00002-of-00002.safetensors: cannot open: no such file",
    );
}

#[test]
fn a_config_of_something_else() {
    let mut tiny = Tiny::new();
    tiny.config["model_type"] = "bert".into();
    refused(
        tiny.write().path(),
        Exit::Data,
        "config.json: key 'model_type': expected \"esm\", found \"bert\"",
    );

    let folder = Tiny::new().write();
    fs::write(folder.path().join("config.json"), b"\x80").unwrap();
    refused(folder.path(), Exit::Data, "config.json: not a JSON object");
}

#[test]
fn a_weight_file_cut_off_anywhere() {
    let tiny = Tiny::new();
    let whole = tiny.bytes(|_| true);
    for length in [0, 1, 7, 8, 9, 1000, whole.len() / 2, whole.len() - 1] {
        let folder = tiny.write_with(&whole[..length]);
        refused(
            folder.path(),
            Exit::Data,
            "model.safetensors: damaged or not a safetensors file",
        );
    }
    let longer = [whole.as_slice(), b"!"].concat();
    refused(
        tiny.write_with(&longer).path(),
        Exit::Data,
        "damaged or not a safetensors file",
    );
}

/// The length of the header is checked before it is believed.
#[test]
fn a_header_of_absurd_size() {
    let tiny = Tiny::new();
    let mut bytes = tiny.bytes(|_| true);
    let file = bytes.len() as u64;
    for (length, what) in [
        (u64::MAX, "header too large"),
        (1 << 40, "header too large"),
        (file, "invalid header length"),
        (file - 7, "invalid header length"),
        (0, "invalid JSON in header"),
    ] {
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        refused(tiny.write_with(&bytes).path(), Exit::Data, what);
    }
}

#[test]
fn tensors_of_another_model_are_listed_in_one_error() {
    let fewer = Tiny::new().renamed(|name| (!name.contains("layer.1.")).then(|| name.to_owned()));
    refused(
        fewer.write().path(),
        Exit::Data,
        "not the tensors of this ESM-2: missing 16 ('encoder.layer.1.attention.LayerNorm.weight', \
         'encoder.layer.1.attention.LayerNorm.bias', 'encoder.layer.1.attention.self.query.weight', …), unexpected 0",
    );

    let mut deeper = Tiny::new();
    deeper.config["num_hidden_layers"] = 3.into();
    refused(
        deeper.write().path(),
        Exit::Data,
        "missing 0, unexpected 17 ('encoder.layer.3.LayerNorm.bias'",
    );

    let misnamed =
        Tiny::new().renamed(|name| Some(name.replace("emb_layer_norm_after.bias", "adapter")));
    refused(
        misnamed.write().path(),
        Exit::Data,
        "missing 1 ('encoder.emb_layer_norm_after.bias'), unexpected 1 ('encoder.adapter')",
    );
}

#[test]
fn a_tensor_of_another_shape_or_type_is_named() {
    let name = "esm.encoder.layer.2.intermediate.dense.weight";
    let mut tiny = Tiny::new();
    tiny.parts.get_mut(name).unwrap().shape = vec![64, 256];
    refused(
        tiny.write().path(),
        Exit::Data,
        "model.safetensors: tensor 'encoder.layer.2.intermediate.dense.weight': expected shape [256, 64], \
         found [64, 256]",
    );

    let mut tiny = Tiny::new();
    tiny.parts.get_mut(name).unwrap().dtype = Dtype::I32;
    refused(
        tiny.write().path(),
        Exit::Data,
        "expected type F32, F16 or BF16, found I32",
    );

    let inv_freq = "esm.encoder.layer.2.attention.self.rotary_embeddings.inv_freq";
    let mut tiny = Tiny::new();
    tiny.parts.get_mut(inv_freq).unwrap().shape = vec![4, 2];
    refused(
        tiny.write().path(),
        Exit::Data,
        "inv_freq': expected shape [8], found [4, 2]",
    );
}

#[test]
fn a_tensor_under_two_names() {
    let mut tiny = Tiny::new();
    let name = "encoder.layer.0.LayerNorm.bias";
    tiny.parts
        .insert(name.to_owned(), tiny.parts[&format!("esm.{name}")].clone());
    refused(
        tiny.write().path(),
        Exit::Data,
        "tensor 'encoder.layer.0.LayerNorm.bias' is stored twice",
    );
}

#[test]
fn an_index_that_is_none() {
    let folder = Tiny::new().write_sharded();
    let index = folder.path().join("model.safetensors.index.json");
    for (text, what) in [
        ("{", "EOF while parsing"),
        ("[]", "key 'weight_map': expected tensor names and files"),
        (
            r#"{"weight_map": {}}"#,
            "key 'weight_map': expected tensor names and files",
        ),
        (
            r#"{"weight_map": {"a": 1}}"#,
            "expected a file name, found 1",
        ),
        (
            r#"{"weight_map": {"a": "../model.safetensors"}}"#,
            "expected a file name, found \"../model.safetensors\"",
        ),
    ] {
        fs::write(&index, text).unwrap();
        refused(folder.path(), Exit::Data, what);
    }
}
