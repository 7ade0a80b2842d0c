//! The files of a model, with the names of the Hub.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::Value;

/// Weight files, and indexes of weight files, in the order in which a loader prefers them.
pub const WEIGHT_FILES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The folder in which the first release of ESMC has its one file of weights.
pub const FIRST_RELEASE: &str = "data/weights";

/// The most bytes of a description or of an index. That of the 15B model has 100 KiB.
pub const MODEL_JSON_BYTES: u64 = 16 << 20;

/// Whether a name is that of an index of weight files.
pub fn is_weight_index(name: &str) -> bool {
    name.ends_with(".index.json")
}

/// Parses an index of weight files: the names of files beside it, each with those of its tensors.
///
/// # Errors
/// Says what is expected, if the index names no file, or a path that may leave the folder.
///
/// ```
/// use plmkit_contract::parse_weight_index;
/// let files = parse_weight_index(br#"{"weight_map": {"a": "1.bin", "b": "2.bin", "c": "1.bin"}}"#)?;
/// assert_eq!(files["1.bin"], ["a", "c"]);
/// for file in ["", ".", "..", "/etc/passwd", "../1.bin", "a/1.bin"] {
///     let index = format!(r#"{{"weight_map": {{"a": "{file}"}}}}"#);
///     assert!(parse_weight_index(index.as_bytes()).is_err(), "{file}");
/// }
/// # Ok::<(), String>(())
/// ```
pub fn parse_weight_index(json: &[u8]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let invalid = |reason: String| format!("not an index of weight files: {reason}");
    let json: Value = serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
    let map = json["weight_map"].as_object().filter(|map| !map.is_empty());
    let map =
        map.ok_or_else(|| invalid("key 'weight_map': expected tensor names and files".to_owned()))?;
    let mut files = BTreeMap::<_, Vec<String>>::new();
    for (tensor, file) in map {
        let name = file.as_str().filter(|name| is_file_name(name));
        let name = name.ok_or_else(|| invalid(format!("expected a file name, found {file}")))?;
        let tensors = files.entry(name.to_owned()).or_default();
        tensors.push(tensor.clone());
    }
    Ok(files)
}

/// Whether a text is the name of a file, and no path.
fn is_file_name(text: &str) -> bool {
    let mut components = Path::new(text).components();
    matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none()
}
