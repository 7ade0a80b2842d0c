//! Settings from the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::HubError;

/// The place of the cache, and the access to the Hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the Hub's cache, if known.
    pub cache: Option<PathBuf>,
    /// The URL of the server, if it is not the Hub itself.
    pub endpoint: Option<String>,
    /// The user's access token.
    pub token: Option<String>,
    /// Whether fetching is forbidden.
    pub offline: bool,
}

impl Settings {
    /// Reads the environment as the Hub's own library for Python does: `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`, `HF_ENDPOINT`,
    /// `HF_TOKEN` and `HF_HUB_OFFLINE`. The token comes from `HF_TOKEN` only, not from the file of a login.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var_os(name), env::home_dir())
    }

    /// The folder of the Hub's cache.
    pub(crate) fn cache(&self) -> Result<&Path, HubError> {
        let what = "no home folder to look for the Hub's cache in; HF_HOME says where it is";
        let cache = self.cache.as_deref();
        cache.ok_or_else(|| HubError::not_found(what.to_owned()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        // A token that is not UTF-8 is refused later, not ignored.
        let token = variable("HF_TOKEN").map(|token| token.to_string_lossy().trim().to_owned());
        let folder = |name| variable(name).map(PathBuf::from);
        let hub_in = |folder: PathBuf| folder.join("huggingface/hub");
        Self {
            cache: folder("HF_HUB_CACHE")
                .or_else(|| folder("HF_HOME").map(|home| home.join("hub")))
                .or_else(|| folder("XDG_CACHE_HOME").map(hub_in))
                .or_else(|| home.map(|home| hub_in(home.join(".cache")))),
            endpoint: text("HF_ENDPOINT").map(|url| url.trim_end_matches('/').to_owned()),
            token: token.filter(|token| !token.is_empty()),
            offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
        }
    }
}

/// Whether a switch is on, as in the Hub's own library.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::from_variables(value, Some("/home/me".into()))
    }

    #[test]
    fn the_most_specific_variable_sets_the_cache() {
        let cache = |variables: &[(&str, &str)]| settings(variables).cache.unwrap();
        let all = [
            ("XDG_CACHE_HOME", "/xdg"),
            ("HF_HOME", "/hf"),
            ("HF_HUB_CACHE", "/hub"),
        ];
        for (variables, expected) in [
            (&all[..0], "/home/me/.cache/huggingface/hub"),
            (&all[..1], "/xdg/huggingface/hub"),
            (&all[..2], "/hf/hub"),
            (&all[..3], "/hub"),
            (&[("HF_HOME", "")], "/home/me/.cache/huggingface/hub"),
        ] {
            assert_eq!(cache(variables), PathBuf::from(expected));
        }
    }

    #[test]
    fn endpoint_token_and_switch_are_read() {
        let set = settings(&[
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_TOKEN", "secret\n"),
            ("HF_HUB_OFFLINE", "Yes"),
        ]);
        assert_eq!(set.endpoint.as_deref(), Some("http://mirror"));
        assert_eq!(set.token.as_deref(), Some("secret"));
        assert!(set.offline);
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).offline);
    }
}
