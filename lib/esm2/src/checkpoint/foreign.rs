//! Names of tensors in messages, and what those of a foreign checkpoint tell of its origin.

use plmkit_kit::Quoted;

/// Says what the tensor of an adapter that is not merged is, if it is one.
pub(super) fn adapter(name: &str) -> Option<String> {
    let parts = [
        ".lora_",
        ".base_layer.",
        ".modules_to_save.",
        ".original_module.",
    ];
    let part = parts.into_iter().find(|part| name.contains(part))?;
    let (name, part) = (Quoted(name), part.trim_matches('.'));
    Some(format!(
        "tensor {name} ({part}) is of a PEFT adapter that is not merged: save the result of merge_and_unload() with \
         save_pretrained()"
    ))
}

/// Names what all names begin with, if no known model has it.
pub(super) fn foreign_prefix(prefix: &str) -> String {
    let own = [
        "esm.",
        "esmc.",
        "encoder.",
        "embeddings.",
        "transformer.",
        "layers.",
    ];
    if prefix.is_empty() || own.iter().any(|own| prefix.starts_with(own)) {
        return String::new();
    }
    let prefix = Quoted(prefix);
    format!("; all names begin with {prefix}: save the model again without that prefix")
}

/// Returns the beginning of `name`, up to a dot, that `prefix` begins with too.
pub(super) fn common_prefix<'a>(name: &'a str, prefix: Option<&str>) -> &'a str {
    let of_name = || name.rfind('.').map_or("", |dot| &name[..=dot]);
    let Some(prefix) = prefix else {
        return of_name();
    };
    let parts = name.split_inclusive('.').zip(prefix.split_inclusive('.'));
    let common = parts.take_while(|(part, other)| part == other);
    &name[..common.map(|(part, _)| part.len()).sum()]
}

/// Returns the count of some tensor names, and the first few.
pub(super) fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let first: Vec<_> = names
        .iter()
        .take(SHOWN)
        .map(|name| Quoted(name).to_string())
        .collect();
    match (names.len(), first.join(", ")) {
        (0, _) => "0".to_owned(),
        (count @ 1..=SHOWN, first) => format!("{count} ({first})"),
        (count, first) => format!("{count} ({first}, …)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::EsmError;

    #[test]
    fn text_of_a_file_stays_on_one_line() {
        let error = EsmError::invalid("a".as_ref(), "weight\n\u{1b}[31m").to_string();
        assert!(!error.contains(char::is_control), "{error}");
        assert_eq!(list_names(&["a\tb".into()]), "1 ('a\\tb')");
    }

    #[test]
    fn a_long_list_shows_its_beginning_and_its_length() {
        let names =
            |count: usize| list_names(&(0..count).map(|i| format!("t{i}")).collect::<Vec<_>>());
        assert_eq!(names(0), "0");
        assert_eq!(names(3), "3 ('t0', 't1', 't2')");
        assert_eq!(names(40), "40 ('t0', 't1', 't2', …)");
    }
}
