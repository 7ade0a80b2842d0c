//! The ids of tokens, by the files of a tokenizer: an id is a row of the embeddings, so that another order gives other residues.

use std::path::Path;

use plmkit_kit::Quoted;
use serde_json::{Map, Value};

use super::folder::check_json;
use crate::error::EsmError;

/// Files that tell ids, and where. `special_tokens_map.json` tells none.
const LISTS: [(&str, &str); 6] = [
    ("config.json", "/vocab_list"),
    ("vocab.txt", ""),
    ("tokenizer.json", "/model/vocab"),
    ("tokenizer.json", "/added_tokens"),
    ("tokenizer_config.json", "/added_tokens_decoder"),
    ("added_tokens.json", ""),
];

/// Checks the files of a folder that tell ids against `tokens`, the names of the model's tokens.
pub(super) fn check_tokens(folder: &Path, tokens: &[String]) -> Result<(), EsmError> {
    let mut lists = LISTS.into_iter();
    lists.try_for_each(|(file, place)| {
        check_json(&folder.join(file), |text| {
            let text = String::from_utf8_lossy(text);
            let all = match file {
                "vocab.txt" => Ok(text.lines().map(str::trim_end).collect()),
                _ => serde_json::from_str(&text),
            };
            let all: Value = all.map_err(|error| format!("not JSON: {error}"))?;
            check_list(all.pointer(place), tokens).map_err(|what| match place.rsplit_once('/') {
                Some((_, key)) => format!("key '{key}': {what}"),
                None => what,
            })
        })
    })
}

/// Checks a list of tokens, of `{id, content}`, of ids by token, or of `{content}` by id. An error names the first id that differs.
fn check_list(list: Option<&Value>, tokens: &[String]) -> Result<(), String> {
    let list: Map<String, Value> = match list {
        Some(Value::Object(list)) => list.clone(),
        Some(Value::Array(list)) => {
            let numbered = list.iter().enumerate();
            numbered
                .map(|(id, token)| (id.to_string(), token.clone()))
                .collect()
        }
        None | Some(Value::Null) => return Ok(()),
        Some(_) => return Err("expected a list of tokens".to_owned()),
    };
    let ids = list.iter().filter_map(|(key, entry)| match entry {
        Value::Number(id) => Some((id.as_u64()?, key.as_str())),
        entry => {
            let id = entry["id"].as_u64().or_else(|| key.parse().ok())?;
            Some((id, entry.as_str().or_else(|| entry["content"].as_str())?))
        }
    });
    // Tokens that were added behind those of the model have no row, and no residue is one.
    let expected = |id: u64| tokens.get(id as usize).map_or("none", String::as_str);
    let differs = |&(id, found): &(u64, &str)| {
        expected(id) != found && (id < tokens.len() as u64 || tokens.iter().any(|own| own == found))
    };
    let Some((id, found)) = ids.filter(differs).min() else {
        return Ok(());
    };
    let (expected, found) = (Quoted(expected(id)), Quoted(found));
    Err(format!("token {id}: expected {expected}, found {found}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_of_another_token_is_named_in_every_form() {
        let tokens = ["<cls>", "L", "A"].map(str::to_owned);
        let swapped = "token 1: expected 'L', found 'A'";
        for (list, expected) in [
            (json!(["<cls>", "L", "A", "extra"]), None),
            (json!(["<cls>", "A", "L"]), Some(swapped)),
            (json!({"<cls>": 0, "A": 2, "L": 1, "extra": 3}), None),
            (json!({"<cls>": 0, "A": 1, "L": 2}), Some(swapped)),
            (
                json!({"0": {"content": "<cls>"}, "7": {"content": "extra"}}),
                None,
            ),
            (
                json!({"0": {"content": "<cls>"}, "1": {"content": "A"}}),
                Some(swapped),
            ),
            (json!([{"id": 1, "content": "L"}]), None),
            (json!([{"id": 1, "content": "A"}]), Some(swapped)),
            (json!({"A": 3}), Some("token 3: expected 'none', found 'A'")),
            (json!(null), None),
        ] {
            let found = check_list(Some(&list), &tokens).err();
            assert_eq!(found.as_deref(), expected, "{list}");
        }
    }
}
