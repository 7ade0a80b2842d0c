//! The name of a model in results.

use std::path::{Component, Path};

use plmkit_contract::ModelName;

use crate::id::is_whole_commit;

/// Returns the name of the model at `path`, a folder or a file in it: for a snapshot of the Hub's cache its id and commit, for any
/// other folder its name.
///
/// ```
/// let path = "cache/models--facebook--esm2_t6_8M_UR50D/snapshots/c731040fcd8d73dceaa04b0a8e6329b345b0f5df";
/// let model = plmkit_hub::model_name(path.as_ref());
/// assert_eq!(model.name, "facebook/esm2_t6_8M_UR50D");
/// assert_eq!(model.revision.as_deref(), Some("c731040fcd8d73dceaa04b0a8e6329b345b0f5df"));
/// assert_eq!(plmkit_hub::model_name("models/mine".as_ref()).name, "mine");
/// ```
pub fn model_name(path: &Path) -> ModelName {
    // Files of a snapshot are links into another folder.
    let folder = match path.parent() {
        Some(parent) if path.is_file() => parent,
        _ => path,
    };
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let names = folder.components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    if let [.., cached, "snapshots", commit] = names[..]
        && let Some(id) = cached.strip_prefix("models--")
        && is_whole_commit(commit)
    {
        return ModelName {
            name: id.replacen("--", "/", 1),
            revision: Some(commit.to_owned()),
        };
    }
    ModelName {
        name: names.last().copied().unwrap_or_default().to_owned(),
        revision: None,
    }
}
