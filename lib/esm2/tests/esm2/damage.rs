//! Damaged checkpoints: one clear line each, and the right exit code.

use std::fs;
use std::path::Path;

use half::{bf16, f16};
use plmkit_esm2::EsmError;
use plmkit_kit::{Exit, Failure};
use safetensors::Dtype;
use serde_json::json;
use tempfile::TempDir;

use crate::support::torch_file::{archive, dictionary, pickle, storage, tensor, text, torch_file};
use crate::support::{Tiny, load};

/// Checks that loading fails with this exit code, in a line that begins with the folder and contains `text`.
fn refused(folder: &Path, exit: Exit, text: &str) {
    let error: EsmError = load(folder).unwrap_err();
    let line = error.to_string();
    assert_eq!(error.exit(), exit, "{line}");
    assert!(line.starts_with(folder.to_str().unwrap()), "{line}");
    assert!(line.contains(text), "expected '{text}' in: {line}");
    assert!(!line.contains('\n'), "{line}");
}

/// Checks that a checkpoint is refused as bad data.
fn refused_data(folder: &TempDir, text: &str) {
    refused(folder.path(), Exit::Data, text);
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
        "expected a folder, or a file with a name in .safetensors or .bin",
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
        "expected model.safetensors, pytorch_model.bin or an index of either, found none of them",
    );

    fs::write(folder.path().join("esm2_t6_8M_UR50D.pt"), b"").unwrap();
    refused(
        folder.path(),
        Exit::NoInput,
        "'esm2_t6_8M_UR50D.pt', a fair-esm checkpoint: convert-fair-esm.py",
    );

    let adapter = folder.path().join("adapter_model.safetensors");
    fs::write(&adapter, b"").unwrap();
    fs::write(folder.path().join("adapter_config.json"), b"{}").unwrap();
    for model in [folder.path(), &adapter] {
        refused(model, Exit::NoInput, "a PEFT adapter, which is no model: ");
        refused(
            model,
            Exit::NoInput,
            "merge_and_unload() with save_pretrained",
        );
    }

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
    refused_data(
        &tiny.write(),
        "config.json: key 'model_type': expected \"esm\" or \"esmc\", found \"bert\"",
    );

    let folder = Tiny::new().write();
    fs::write(folder.path().join("config.json"), b"\x80").unwrap();
    refused_data(&folder, "config.json: not a JSON object");
}

/// As transformers 5 reads it.
#[test]
fn weights_that_the_config_names_are_read_or_refused() {
    let mut tiny = Tiny::new();
    let key = "transformers_weights";
    for (named, other) in [
        ("other.safetensors", "other.safetensors"),
        ("../model.safetensors", "a.safetensors"),
    ] {
        tiny.config[key] = named.into();
        let folder = tiny.write();
        let path = folder.path().join(other);
        fs::copy(folder.path().join("model.safetensors"), &path).unwrap();
        let expected =
            format!("config.json: key '{key}': expected \"model.safetensors\", found \"{named}\"");
        refused_data(&folder, &expected);
        load(&path).unwrap();
    }
    tiny.config[key] = "model.safetensors".into();
    tiny.load().unwrap();
    tiny.config[key] = "model.safetensors.index.json".into();
    load(tiny.write_sharded().path()).unwrap();
    refused_data(&tiny.write(), "found \"model.safetensors.index.json\"");
}

/// The files of honest tokenizers are read, and those of another order refused.
#[test]
fn tokens_in_another_order() {
    let config = Tiny::new().load().unwrap().info().config().clone();
    let published = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>";
    assert_eq!(config.tokens.join(" "), published);
    let lists = |tokens: &[String]| {
        let ids: serde_json::Map<_, _> = (0..)
            .zip(tokens)
            .map(|(id, token)| (token.clone(), json!(id)))
            .collect();
        let by_id: serde_json::Map<_, _> = (0..)
            .zip(tokens)
            .map(|(id, token)| (format!("{id}"), json!({"content": token, "special": false})))
            .collect();
        [
            ("vocab.txt", "", tokens.join("\r\n")),
            ("tokenizer.json", "key 'vocab': ", json!({"added_tokens": [{"id": 1, "content": "<pad>"}], "model": {"type": "BPE", "vocab": ids}}).to_string()),
            ("tokenizer_config.json", "key 'added_tokens_decoder': ", json!({"added_tokens_decoder": by_id, "pad_token": "<pad>"}).to_string()),
            ("added_tokens.json", "", json!(ids).to_string()),
        ]
    };
    let folder = Tiny::new().write();
    let mut longer = config.tokens.clone();
    longer.push("<added>".to_owned());
    for tokens in [&config.tokens, &longer] {
        for (file, _, text) in lists(tokens) {
            fs::write(folder.path().join(file), text).unwrap();
        }
        load(folder.path()).unwrap();
    }
    let mut swapped = longer;
    swapped.swap(5, 23);
    for (file, key, text) in lists(&swapped) {
        let honest = fs::read(folder.path().join(file)).unwrap();
        fs::write(folder.path().join(file), text).unwrap();
        refused_data(
            &folder,
            &format!("/{file}: {key}token 5: expected 'A', found 'C'"),
        );
        fs::write(folder.path().join(file), honest).unwrap();
    }
    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    refused_data(&folder, "/tokenizer.json: not JSON: EOF");

    let mut tiny = Tiny::new();
    tiny.config["vocab_list"] = json!(config.tokens);
    tiny.load().unwrap();
    tiny.config["vocab_list"] = json!(swapped);
    refused_data(
        &tiny.write(),
        "config.json: key 'vocab_list': token 5: expected 'A', found 'C'",
    );
    tiny.config["vocab_list"] = json!("all");
    refused_data(
        &tiny.write(),
        "config.json: key 'vocab_list': expected a list of tokens",
    );
}

#[test]
fn a_link_to_nothing_is_no_missing_file() {
    for file in ["vocab.txt", "tokenizer.json", "added_tokens.json"] {
        let folder = Tiny::new().write();
        std::os::unix::fs::symlink("nothing", folder.path().join(file)).unwrap();
        let what = format!("/{file}: cannot open: no such file or directory");
        refused(folder.path(), Exit::NoInput, &what);
    }
}

/// A pipe would wait for a writer, and a device has no end.
#[test]
fn every_file_of_a_model_that_is_not_regular_is_named() {
    let sharded = || Tiny::new().write_sharded();
    let first_release = || {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/weights")).unwrap();
        folder
    };
    let cases: [(&dyn Fn() -> TempDir, &str); 9] = [
        (&|| Tiny::new().write(), "config.json"),
        (&|| Tiny::new().write(), "model.safetensors"),
        (&|| Tiny::new().write(), "vocab.txt"),
        (&|| Tiny::new().write(), "tokenizer.json"),
        (&|| Tiny::new().write(), "tokenizer_config.json"),
        (&|| Tiny::new().write(), "added_tokens.json"),
        (&sharded, "model.safetensors.index.json"),
        (&sharded, "model-00002-of-00002.safetensors"),
        (&first_release, "data/weights/a.pth"),
    ];
    for (folder, file) in cases {
        let folder = folder();
        let path = folder.path().join(file);
        let what = format!("/{file}: cannot open: not a regular file");
        for endless in [false, true] {
            let _ = fs::remove_file(&path);
            if endless {
                std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            } else {
                let made = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(made.unwrap().success());
            }
            refused(folder.path(), Exit::NoInput, &what);
        }
    }
}

#[test]
fn a_weight_file_cut_off_anywhere() {
    let tiny = Tiny::new();
    let whole = tiny.bytes(|_| true);
    let damaged = "model.safetensors: damaged or not a safetensors file: expected";
    let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap());
    for (length, expected) in [
        (0, "more than 8".to_owned()),
        (7, "more than 8".to_owned()),
        (9, format!("more than {header}")),
        (1000, format!("more than {header}")),
        (whole.len() / 2, whole.len().to_string()),
        (whole.len() - 1, whole.len().to_string()),
        (whole.len() + 1, whole.len().to_string()),
    ] {
        let bytes = [whole.as_slice(), b"!"].concat();
        let folder = tiny.write_with(&bytes[..length]);
        let what = format!("{damaged} {expected} bytes, found {length}");
        refused_data(&folder, &what);
    }
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
        (file, "expected more than"),
        (file - 7, "expected more than"),
        (0, "invalid JSON in header"),
    ] {
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        refused_data(&tiny.write_with(&bytes), what);
    }
}

#[test]
fn tensors_of_another_model_are_listed_in_one_error() {
    let fewer = Tiny::new().renamed(|name| (!name.contains("layer.1.")).then(|| name.to_owned()));
    refused_data(
        &fewer.write(),
        "not the tensors of this model: missing 16 ('encoder.layer.1.attention.LayerNorm.weight', \
         'encoder.layer.1.attention.LayerNorm.bias', 'encoder.layer.1.attention.self.query.weight', …), unexpected 0",
    );

    let mut deeper = Tiny::new();
    deeper.config["num_hidden_layers"] = 3.into();
    refused_data(
        &deeper.write(),
        "missing 0, unexpected 17 ('encoder.layer.3.LayerNorm.bias'",
    );

    let misnamed =
        Tiny::new().renamed(|name| Some(name.replace("emb_layer_norm_after.bias", "adapter")));
    refused_data(
        &misnamed.write(),
        "missing 1 ('encoder.emb_layer_norm_after.bias'), unexpected 1 ('encoder.adapter')",
    );
}

#[test]
fn a_prefix_of_all_names_is_named() {
    let tiny = Tiny::new();
    for prefix in [
        "model.",
        "module.",
        "_orig_mod.",
        "base_model.model.",
        "a.b.",
    ] {
        let other = tiny.renamed(|name| Some(format!("{prefix}{name}")));
        let what =
            format!("; all names begin with '{prefix}': save the model again without that prefix");
        refused_data(&other.write(), &what);
        let encoder = other.renamed(|name| name.contains(".esm.").then(|| name.to_owned()));
        refused_bin(
            &torch_file(&encoder.parts),
            &format!("with '{prefix}esm.': "),
        );
    }
    // Names of which not all have it are listed only.
    let some = tiny.renamed(|name| Some(name.replace("esm.encoder", "model.encoder")));
    let error = some.load().unwrap_err().to_string();
    assert!(error.ends_with(", …)"), "{error}");
}

/// A file of another model under the name of one in the index.
#[test]
fn a_file_that_is_not_the_one_of_the_index() {
    let folder = Tiny::new().write_sharded();
    let second = folder.path().join("model-00002-of-00002.safetensors");
    let without = |missing: &'static str| {
        Tiny::new().bytes(move |name| {
            !name.contains("layer.0") && !name.contains("layer.2") && !name.contains(missing)
        })
    };
    fs::write(&second, without("layer.3.")).unwrap();
    refused_data(
        &folder,
        "model-00002-of-00002.safetensors: not the file of this model's index: missing 17 ('esm.encoder.layer.3.",
    );
    fs::write(&second, Tiny::new().bytes(|name| !name.contains("layer.0"))).unwrap();
    let first = folder.path().join("model-00001-of-00002.safetensors");
    let twice = format!("' is stored twice, here and in {}", first.display());
    refused_data(&folder, &twice);
    let mut wider = Tiny::new();
    for part in wider.parts.values_mut() {
        part.shape.push(1);
    }
    fs::write(
        &second,
        wider.bytes(|name| !name.contains("layer.0") && !name.contains("layer.2")),
    )
    .unwrap();
    refused_data(
        &folder,
        "model-00002-of-00002.safetensors: tensor 'embeddings.word_embeddings.weight': expected shape",
    );
}

#[test]
fn a_tensor_of_another_shape_or_type_is_named() {
    let name = "esm.encoder.layer.2.intermediate.dense.weight";
    let mut tiny = Tiny::new();
    tiny.parts.get_mut(name).unwrap().shape = vec![64, 256];
    refused_data(
        &tiny.write(),
        "model.safetensors: tensor 'encoder.layer.2.intermediate.dense.weight': expected shape [256, 64], \
         found [64, 256]",
    );

    let mut tiny = Tiny::new();
    tiny.parts.get_mut(name).unwrap().dtype = Dtype::I32;
    refused_data(&tiny.write(), "expected type F32, F16 or BF16, found I32");

    let inv_freq = "esm.encoder.layer.2.attention.self.rotary_embeddings.inv_freq";
    let mut tiny = Tiny::new();
    tiny.parts.get_mut(inv_freq).unwrap().shape = vec![4, 2];
    refused_data(&tiny.write(), "inv_freq': expected shape [8], found [4, 2]");
}

#[test]
fn a_tensor_under_two_names() {
    let mut tiny = Tiny::new();
    let name = "encoder.layer.0.LayerNorm.bias";
    tiny.parts
        .insert(name.to_owned(), tiny.parts[&format!("esm.{name}")].clone());
    refused_data(
        &tiny.write(),
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
        refused_data(&folder, what);
    }
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    let wrong = [
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
    ];
    let names = [
        "esm.embeddings.word_embeddings.weight",
        "esm.encoder.layer.2.attention.self.rotary_embeddings.inv_freq",
        "esm.encoder.layer.3.output.dense.weight",
        "esm.encoder.emb_layer_norm_after.bias",
        "lm_head.layer_norm.bias",
    ];
    for (name, (value, found)) in names.into_iter().zip(wrong.into_iter().cycle()) {
        let what = format!(
            "tensor '{}': expected finite values, found {found} at index 5",
            name.trim_start_matches("esm.")
        );
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let mut tiny = Tiny::new();
            if dtype != Dtype::F32 {
                tiny = tiny.narrowed();
            }
            let part = tiny.parts.get_mut(name).unwrap();
            let bytes = match dtype {
                Dtype::F32 => value.to_le_bytes().to_vec(),
                Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
                _ => bf16::from_f32(value).to_le_bytes().to_vec(),
            };
            part.dtype = dtype;
            part.bytes[5 * bytes.len()..6 * bytes.len()].copy_from_slice(&bytes);
            let line = |file: &str| format!("{file}: {what}");
            let folder = tiny.write();
            refused_data(&folder, &line("model.safetensors"));
            refused_bin(&torch_file(&tiny.parts), &line("pytorch_model.bin"));
        }
    }
}

#[test]
fn a_record_of_a_file_of_pytorch_that_is_not_as_it_was_saved() {
    let tiny = Tiny::new();
    let whole = torch_file(&tiny.parts);
    assert!(load(tiny.write_bin(&whole).path()).is_ok());
    let rotten = |at: usize, flip: u8, record: &str| {
        let mut bytes = whole.clone();
        bytes[at] ^= flip;
        let what = format!("pytorch_model.bin: damaged: record '{record}' has CRC-32 ");
        refused_bin(&bytes, &what);
    };
    let find = |text: &[u8]| whole.windows(text.len()).position(|window| window == text);
    // The name of a tensor; the last bit of a weight; one that makes another weight infinite.
    rotten(find(b"LayerNorm").unwrap(), 1, "data.pkl");
    for (number, (name, part)) in tiny.parts.iter().enumerate().step_by(7) {
        let header = format!("archive/data/{number}");
        let record = find(header.as_bytes()).unwrap() + header.len();
        assert_eq!(
            whole[record..record + part.bytes.len()],
            part.bytes,
            "{name}"
        );
        rotten(record, 1, &header[8..]);
        rotten(record + part.bytes.len() - 1, 0x7f, &header[8..]);
    }
    // PyTorch can be told to save no checksums.
    let mut without = whole.clone();
    let mut at = 0;
    while let Some(entry) = without[at..]
        .windows(6)
        .position(|bytes| bytes == b"PK\x01\x02\0\0")
    {
        without[at + entry + 16..at + entry + 20].fill(0);
        at += entry + 6;
    }
    assert!(load(tiny.write_bin(&without).path()).is_ok());
}

/// A file of PyTorch with this pickle and one record of four bytes.
fn refused_pickle(pickle: &[u8], what: &str) {
    let records = [("data.pkl", pickle), ("data/0", &[0; 4])];
    refused_bin(&archive(&records), what);
}

fn refused_bin(bytes: &[u8], what: &str) {
    refused_data(&Tiny::new().write_bin(bytes), what);
}

#[test]
fn a_file_of_pytorch_cut_off_anywhere() {
    let whole = torch_file(&Tiny::new().parts);
    for length in [0, 1, 21, 22, 1000, whole.len() / 2, whole.len() - 1] {
        refused_bin(
            &whole[..length],
            "pytorch_model.bin: damaged or not a PyTorch file",
        );
    }
    // The format before the archives was a pickle of its own.
    refused_bin(
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
        "save the model again",
    );
}

#[test]
fn tensors_of_another_model_are_listed_for_a_file_of_pytorch_as_well() {
    let fewer = Tiny::new().renamed(|name| (!name.contains("layer.1.")).then(|| name.to_owned()));
    refused_bin(
        &torch_file(&fewer.parts),
        "not the tensors of this model: missing 16 ('encoder.layer.1.attention.LayerNorm.weight', ",
    );
    let mut tiny = Tiny::new();
    let name = "esm.encoder.layer.2.intermediate.dense.weight";
    tiny.parts.get_mut(name).unwrap().shape = vec![64, 256];
    refused_bin(
        &torch_file(&tiny.parts),
        "pytorch_model.bin: tensor 'encoder.layer.2.intermediate.dense.weight': expected shape [256, 64]",
    );
    let part = tiny.parts.get_mut(name).unwrap();
    (part.dtype, part.shape) = (Dtype::F64, vec![128, 64]);
    tiny.parts.get_mut(name).unwrap().shape = vec![256, 32];
    refused_bin(
        &torch_file(&tiny.parts),
        "expected shape [256, 64], found [256, 32]",
    );
}

/// A pickle is a program: none of it is run but what a dictionary of tensors is made of.
#[test]
fn objects_of_other_classes() {
    for (class, what) in [
        (
            "cposix\nsystem\n",
            "an object of class 'posix.system', which is not read: save",
        ),
        (
            "cbuiltins\neval\n",
            "an object of class 'builtins.eval', which is not read: save",
        ),
        (
            "cargparse\nNamespace\n",
            "a fair-esm checkpoint, which is not read: convert-fair-esm.py",
        ),
    ] {
        let value = [class.as_bytes(), &text("true"), b"\x85R"].concat();
        refused_pickle(&pickle(&value), what);
        let stacked = class.trim_start_matches('c').trim_end();
        let (module, name) = stacked.split_once('\n').unwrap();
        let value = [text(module), text(name), b"\x93".to_vec()].concat();
        refused_pickle(&pickle(&value), what);
    }
    // Of the other objects that PyTorch makes of bytes, none has the values that lie in the file.
    for class in [
        "ctorch._utils\n_rebuild_qtensor\n",
        "ctorch._utils\n_rebuild_sparse_tensor\n",
        "ctorch._utils\n_rebuild_tensor_v3\n",
        "ctorch._utils\n_rebuild_parameter_with_state\n",
        "ctorch\nQInt8Storage\n",
        "ctorch\nComplexFloatStorage\n",
        "ctorch\nUntypedStorage\n",
    ] {
        let value = [class.as_bytes(), b")R"].concat();
        refused_pickle(&pickle(&value), "', which is not read: save");
    }
    let number = [text("a"), b"K\x01".to_vec()].concat();
    refused_pickle(
        &pickle(&dictionary(&number)),
        "entry 'a': expected a tensor",
    );
    refused_pickle(&pickle(b"]"), "expected a dictionary of tensors");
    let one = tensor(&storage("FloatStorage", 0, 1), 0, &[1], &[1]);
    let twice = [text("a"), one.clone(), text("a"), one].concat();
    refused_pickle(&pickle(&dictionary(&twice)), "entry 'a' is there twice");
}

#[test]
fn a_checkpoint_of_fair_esm_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("esm2_t6_8M_UR50D.pt");
    let records = [("data.pkl", &pickle(b"cargparse\nNamespace\n")[..])];
    fs::write(&path, archive(&records)).unwrap();
    refused(
        &path,
        Exit::Data,
        "a fair-esm checkpoint, which is not read: convert-fair-esm.py",
    );
}

/// The last argument of a tensor says whether its values are those of the storage.
#[test]
fn a_tensor_with_flags() {
    let one = tensor(&storage("FloatStorage", 0, 1), 0, &[1], &[1]);
    let with = |flags: &[u8]| {
        let arguments = one.strip_suffix(b"tR").unwrap();
        let entry = [
            text("a"),
            arguments.to_vec(),
            flags.to_vec(),
            b"tR".to_vec(),
        ]
        .concat();
        pickle(&dictionary(&entry))
    };
    for none in [&b""[..], b"N", b"}"] {
        refused_pickle(&with(none), "unexpected 1 ('a')");
    }
    let flag = |name: &str, value: &[u8]| [b"}", &text(name)[..], value, b"s"].concat();
    for flags in [
        flag("neg", b"\x88"),
        flag("conj", b"\x88"),
        flag("other", b"\x89"),
        b"\x88".to_vec(),
        b"NN".to_vec(),
    ] {
        refused_pickle(
            &with(&flags),
            "has a tensor with flags, such as a negative or conjugate view",
        );
    }
}

/// What a pickle claims is compared with what is there before anything is done with it.
#[test]
fn claims_of_a_pickle() {
    let claimed = |storage: &[u8], offset: usize, shape: &[usize], strides: &[usize]| {
        let entry = [text("a"), tensor(storage, offset, shape, strides)].concat();
        pickle(&dictionary(&entry))
    };
    let one = storage("FloatStorage", 0, 1);
    for (shape, strides) in [
        (&[2][..], &[1][..]),
        (&[1 << 40], &[0]),
        (&[1 << 40, 1 << 40], &[0, 0]),
        (&[2, 2], &[usize::MAX >> 1, usize::MAX >> 1]),
    ] {
        let what = "tensor 'a': expected to lie in its storage of 1 values";
        refused_pickle(&claimed(&one, 0, shape, strides), what);
    }
    refused_pickle(
        &claimed(&one, 1, &[1], &[1]),
        "expected to lie in its storage",
    );
    let (huge, absent) = (
        storage("FloatStorage", 0, 1 << 62),
        storage("FloatStorage", 7, 1),
    );
    refused_pickle(
        &claimed(&huge, 0, &[1], &[1]),
        "record 'data/0': expected 4611686018427387904",
    );
    refused_pickle(&claimed(&absent, 0, &[1], &[1]), "no record 'data/7'");
    refused_pickle(&claimed(&one, usize::MAX, &[0], &[1]), "from byte ");
    refused_pickle(&claimed(&one, 0, &[1; 9], &[1; 9]), "from byte ");
    // Nothing of nothing is a tensor, only not one of this model.
    refused_pickle(
        &claimed(&one, 1 << 62, &[0, 1 << 40], &[1, 1]),
        "unexpected 1 ('a')",
    );
    // Two matrices of nothing in one are two of nothing.
    let name = text("transformer.blocks.0.ffn.1.weight");
    let entry = [name, tensor(&one, 0, &[4, 0], &[1 << 62, 1])].concat();
    refused_pickle(
        &pickle(&dictionary(&entry)),
        "unexpected 1 ('encoder.layer.0.intermediate.gate.weight')",
    );
}

#[test]
fn pickles_that_would_take_the_stack_or_the_memory() {
    let nested = [b")".to_vec(), vec![0x85; 1 << 20]].concat();
    refused_pickle(&pickle(&nested), "from byte ");
    refused_pickle(&pickle(&vec![b'}'; 1 << 20]), "from byte ");
    refused_pickle(&pickle(&vec![b'('; 1 << 20]), "from byte ");
    let remembered = [b"}".to_vec(), vec![0x94; 1 << 20]].concat();
    refused_pickle(&pickle(&remembered), "from byte ");
    refused_pickle(
        &vec![b'}'; 5 << 20],
        "expected a pickle of at most 4194304 bytes",
    );
    refused_pickle(b"\x80\x02X\xff\xff\xff\xff", "from byte 2 on");
    refused_pickle(b"\x80\x02j\xff\xff\xff\xff", "from byte 2 on");
}

#[test]
fn archives_that_claim_more_than_they_hold() {
    let records = [("data.pkl", &pickle(b"}")[..]), ("data/0", &[0; 4])];
    let good = archive(&records);
    let directory = good.len() - 22 - 2 * 46 - "archive/data.pklarchive/data/0".len();
    let packed = "'archive/data.pkl' is compressed or encrypted";
    let beyond = "'archive/data.pkl' reaches beyond the file";
    for (at, bytes, what) in [
        (directory + 10, &[8][..], packed),
        (directory + 8, &[1], packed),
        (directory + 24, &[0xff; 4], packed),
        (directory + 20, &[0xfe; 8], beyond),
        (directory + 42, &[0xfe; 4], beyond),
        (good.len() - 6, &[0; 4], beyond),
        (directory, b"XX", "no zip archive in it"),
        (good.len() - 10, &[0xff; 8], "no zip archive in it"),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        refused_bin(&bad, what);
    }
    refused_bin(&archive(&records[1..]), "no record data.pkl");
    let big = [("byteorder", &b"big"[..]), records[0]];
    refused_bin(&archive(&big), "byte order: expected little");
    refused_bin(&archive(&[records[0], records[0]]), "no zip archive in it");
}
