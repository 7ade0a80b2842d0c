//! What computes: this process on a CPU, a child for each GPU.

use plmkit_cli::{Exit, Fault, LogFormat, Stop};
use plmkit_esm2::{Device, WorkerGpu};
use plmkit_programs::gpu_embed::{self, Child, Request, Session};

use crate::options::Options;

/// What computes one shard at a time.
pub(crate) enum Computer<'a> {
    /// The model of this process.
    Here(&'a mut Session),
    /// A child.
    Child(&'a mut Child),
}

/// The children that compute with these options, `count` of them if that does not follow from the device; none if this process
/// computes. A GPU's library is never loaded into this process.
pub(crate) fn children(
    options: &Options,
    count: Option<usize>,
    session: &Session,
) -> Result<Vec<Child>, Fault> {
    let device = options.gpu_embed.device;
    let visible = None;
    let devices = match (device, count) {
        (Device::All, _) => Device::each_gpu()?,
        (_, Some(count)) => vec![WorkerGpu { device, visible }; count],
        _ if session.engine().info().device_kind() == "cpu" => return Ok(Vec::new()),
        _ => vec![WorkerGpu { device, visible }],
    };
    let threads = gpu_embed::threads(options.gpu_embed.threads).get();
    let share = threads.div_ceil(devices.len());
    let mut words = options.words.gpu_embed.clone();
    let model = &session.engine().info().checkpoint.digest;
    words.push(format!("--serve-model={model}"));
    words.push(format!("--model={}", options.gpu_embed.model.display()));
    let common = &options.gpu_embed.common;
    let own = [
        (
            options.gpu_embed.threads.is_none(),
            format!("--threads={share}"),
        ),
        // All compute in one type.
        (true, format!("--dtype={}", session.engine().info().dtype)),
        (common.quiet, "--quiet".to_owned()),
        (common.verbose, "--verbose".to_owned()),
        (
            common.log_format == LogFormat::Json,
            "--log-format=json".to_owned(),
        ),
    ];
    let is_given = |word: &str| words.iter().any(|given| given.starts_with(word));
    let own = own.into_iter().filter(|(is_set, word)| {
        let name = word.split('=').next().unwrap_or_default();
        *is_set && !is_given(name)
    });
    let own: Vec<String> = own.map(|(_, word)| word).collect();
    words.extend(own);
    let child = |device| Child::new(words.iter().map(Into::into), device);
    Ok(devices.into_iter().map(child).collect())
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
