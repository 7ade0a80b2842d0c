//! Why a model is not available.

use std::io;
use std::path::Path;

use plmkit_kit::{Exit, Failure, Fault, io_text, one_line, path_text};

/// Why a name of a model leads to no files. Messages begin with the model, path, URL or variable that they are about.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The cache, the server or an environment variable has no such model, or no valid one; or the cache cannot be read or written. The
    /// message never shows a token.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

impl HubError {
    /// Makes the error of a model that the cache or the server does not have.
    pub(crate) fn not_found(what: String) -> Self {
        Fault::new(Exit::NoInput, what).into()
    }

    /// Makes the error of a transfer from `url`.
    pub(crate) fn network(url: &str, what: &str) -> Self {
        let what = one_line(what, usize::MAX);
        Fault::new(Exit::Transient, format!("{url}: cannot fetch: {what}")).into()
    }

    /// Makes the error of an answer that no Hub gives.
    pub(crate) fn answer(url: &str, what: &str) -> Self {
        let what = one_line(what, usize::MAX);
        Fault::new(Exit::Data, format!("{url}: not an answer of a Hub: {what}")).into()
    }

    /// Makes the error of a request that got no answer.
    pub(crate) fn from_request(url: &str, error: ureq::Error) -> Self {
        use ureq::Error as Http;
        match error {
            Http::Io(source) => Self::network(url, &io_text(&source)),
            Http::HostNotFound
            | Http::ConnectionFailed
            | Http::ConnectProxyFailed(_)
            | Http::Protocol(_)
            | Http::Timeout(_) => Self::network(url, &error.to_string()),
            other => Self::answer(url, &other.to_string()),
        }
    }

    /// Makes the error of a request with this answer, which may ask to wait so many seconds.
    pub(crate) fn from_status(url: &str, status: u16, has_token: bool, wait: Option<u64>) -> Self {
        match status {
            401 | 403 if has_token => Self::not_found(format!(
                "{url}: the server refuses the token in HF_TOKEN ({status}); expected one that is valid and may read this model"
            )),
            401 | 403 | 404 | 410 => Self::not_found(format!(
                "{url}: no such model, revision or file ({status}); a private one needs a token in HF_TOKEN that may read it"
            )),
            408 | 429 | 500.. => {
                let wait = wait.map_or(String::new(), |wait| {
                    format!(" and asks to wait {wait} s, which is too long")
                });
                Self::network(
                    url,
                    &format!("the server answers with status {status}{wait}"),
                )
            }
            other => Self::answer(url, &format!("status {other}")),
        }
    }

    /// Makes the error that another process has the lock at `path`.
    pub(crate) fn busy(path: &Path) -> Self {
        let what = "another process is fetching this model";
        Fault::of_path(Exit::Transient, path, what).into()
    }

    /// Makes the error of a file of the cache at `path` that cannot be read.
    pub(crate) fn cannot_read(path: &Path, error: &io::Error) -> Self {
        let what = format_args!("{}: cannot read", path_text(path));
        Fault::of_system(Exit::NoInput, what, error).into()
    }

    /// Makes the error of a file at `path` that cannot be written.
    pub(crate) fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| {
            let exit = match error.kind() {
                io::ErrorKind::ReadOnlyFilesystem => Exit::Io,
                _ => Exit::CannotCreate,
            };
            let what = format_args!("{}: cannot write", path_text(path));
            Fault::of_system(exit, what, &error).into()
        }
    }
}

impl Failure for HubError {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused(fault) => fault.exit(),
            Self::Stopped => Exit::Transient,
        }
    }
}
