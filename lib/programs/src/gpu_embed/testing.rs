//! Hidden options for tests and benchmarks. Released programs do not have them.

use clap::Args;
use plmkit_engine::Injection;

#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct Profile {
    /// Record the time of each kind of GPU kernel in the run events
    #[arg(long, hide = true, requires = "events")]
    pub(crate) profile: bool,
}

#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct TestingArgs {
    /// Inject failures: `out-of-memory-above=TOKENS`, `not-finite=ORDINAL`, `abort=ORDINAL`, `panic=ORDINAL`
    #[arg(long, value_name = "FAILURE", hide = true, default_value = "")]
    #[arg(value_parser = injection)]
    pub(crate) inject: Injection,
}

/// Parses failures, separated by commas.
fn injection(text: &str) -> Result<Injection, String> {
    let mut injection = Injection::default();
    for failure in text.split(',').filter(|failure| !failure.is_empty()) {
        let (name, value) = failure.split_once('=').unwrap_or((failure, ""));
        let value: u64 = value
            .parse()
            .map_err(|_| format!("expected NAME=NUMBER, found '{failure}'"))?;
        match name {
            "out-of-memory-above" => injection.out_of_memory_above = Some(value as usize),
            "not-finite" => injection.not_finite.push(value),
            "abort" => injection.abort.push(value),
            "panic" => injection.panic.push(value),
            _ => return Err(format!("no such failure: '{name}'")),
        }
    }
    Ok(injection)
}
