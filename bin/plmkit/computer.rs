//! What computes: this process on a CPU, a child for each GPU.

use std::env;
use std::ffi::OsString;

use plmkit_cli::{Exit, Fault, LogFormat, ProgressDisplay, Stop};
use plmkit_contract::Reject;
use plmkit_esm2::{Device, WorkerGpu};
use plmkit_kit::{Quoted, path_text, plural};
use plmkit_programs::gpu_embed::{self, Child, Request, Session};
use plmkit_store::StoreError;
use tempfile::TempDir;
use tracing::dispatcher::{get_default, with_default as with_dispatch};
use tracing::subscriber::{NoSubscriber, with_default};

/// What computes one shard at a time.
pub(crate) enum Computer<'a> {
    /// The model of this process.
    Here(&'a mut Session),
    Child(&'a mut Child),
}

/// The children that compute with these options, `count` of them if that does not follow from the device; none if this process
/// computes. A GPU's library is never loaded into this process.
pub(crate) fn children(
    args: &gpu_embed::Args,
    count: Option<usize>,
    session: &Session,
) -> Result<Vec<Child>, Fault> {
    let asked = &args.options.computation;
    let device = asked.device;
    let visible = None;
    let devices = match (device, count) {
        (Device::All, _) => Device::each_gpu()?,
        (_, Some(count)) => vec![WorkerGpu { device, visible }; count],
        _ if session.engine().info().device_kind() == "cpu" => return Ok(Vec::new()),
        _ => vec![WorkerGpu { device, visible }],
    };
    let threads = gpu_embed::threads(asked.threads).get();
    let share = threads.div_ceil(devices.len());
    let mut words = args.options.words.clone();
    let model = &session.engine().info().checkpoint.digest;
    words.push(format!("--serve-model={model}").into());
    let mut model = OsString::from("--model=");
    model.push(&args.model);
    words.push(model);
    let common = &args.common;
    let dtype = session.engine().info().dtype;
    let is_json = common.log_format == LogFormat::Json;
    let own = [
        (!args.options.has("--threads"), format!("--threads={share}")),
        // All compute in one type.
        (!args.options.has("--dtype"), format!("--dtype={dtype}")),
        (common.quiet, "--quiet".to_owned()),
        (common.verbose, "--verbose".to_owned()),
        (is_json, "--log-format=json".to_owned()),
    ];
    let own = own.into_iter().filter(|(is_set, _)| *is_set);
    words.extend(own.map(|(_, word)| word.into()));
    let child = |device| Child::new(words.clone(), device);
    Ok(devices.into_iter().map(child).collect())
}

/// Makes a folder for what a command leaves nothing of.
pub(crate) fn temporary_folder() -> Result<TempDir, Fault> {
    let folder = tempfile::Builder::new().prefix("plmkit-").tempdir();
    folder.map_err(|error| {
        let place = format!(
            "{}: cannot create a temporary folder here, TMPDIR names another",
            path_text(&env::temp_dir())
        );
        Fault::of_system(Exit::CannotCreate, place, &error)
    })
}

/// Answers a request of a command that is no run, with a bar of `tokens`, on one computer of these.
pub(crate) fn answer_aside(
    args: &gpu_embed::Args,
    count: Option<usize>,
    session: &mut Session,
    request: &Request,
    tokens: u64,
    stop: &Stop,
) -> Result<Exit, Fault> {
    let mut shown = ProgressDisplay::start(
        args.options.computation.progress,
        args.common.quiet,
        "tokens",
        tokens,
    );
    let mut args = args.clone();
    args.common.quiet = true;
    let mut children = children(&args, count, session)?;
    let mut computers = Computer::all(&mut children, session);
    let messages = get_default(Clone::clone);
    let mut advance = |tokens| with_dispatch(&messages, || shown.advance(tokens));
    // Its messages are about files that nobody sees.
    let ended = with_default(NoSubscriber::new(), || {
        computers[0].answer(&args, request, stop, &mut advance)
    });
    StoreError::check(stop)?;
    ended
}

/// Warns of records of a file that could not be computed, and are `without` something. Returns how the command ends.
pub(crate) fn warn_of_rejects(file: &str, rejected: &[Reject], without: &str) -> Exit {
    if rejected.is_empty() {
        return Exit::Done;
    }
    let count = plural(rejected.len() as u64, "record");
    let why = |one: &Reject| format!("{} ({})", Quoted(&one.id), one.reason);
    let named: Vec<String> = rejected.iter().take(5).map(why).collect();
    let named = named.join(", ");
    tracing::warn!("{file}: {count} {without}, such as {named}");
    Exit::Negative
}

impl<'a> Computer<'a> {
    /// The children, or this process if there are none.
    pub(crate) fn all(children: &'a mut [Child], session: &'a mut Session) -> Vec<Self> {
        if children.is_empty() {
            vec![Self::Here(session)]
        } else {
            children.iter_mut().map(Self::Child).collect()
        }
    }

    /// Does what is asked for, and tells the tokens that are embedded.
    pub(crate) fn answer(
        &mut self,
        args: &gpu_embed::Args,
        request: &Request,
        stop: &Stop,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Exit, Fault> {
        match self {
            Self::Here(session) => session.answer(args, request, stop, advance),
            Self::Child(child) => child.answer(request, stop, advance),
        }
    }
}
