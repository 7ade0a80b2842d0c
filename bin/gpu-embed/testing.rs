//! Hidden options for tests and benchmarks. Released programs do not have them.

use clap::Args;
use plmkit_engine::{Injection, RunConfig};
use plmkit_esm2::{Isa, Kernels};

#[derive(Args, Debug)]
pub(crate) struct TestingArgs {
    /// Kernels of the layers on a CPU, for comparisons: `auto`, `portable`, `avx2`, `avx512`, `avx512_vnni`,
    /// `avx512_bf16`, `libtorch`
    #[arg(long, value_name = "KERNELS", default_value = "auto", hide = true)]
    #[arg(value_parser = |text: &str| kernels(text, Isa::is_available))]
    kernels: Kernels,

    /// Record the time of each kind of GPU kernel in the run events
    #[arg(long, hide = true, requires = "events")]
    profile: bool,

    /// Inject failures: `out-of-memory-above=TOKENS`, `not-finite=ORDINAL`, `abort=ORDINAL`, `panic=ORDINAL`
    #[arg(long, value_name = "FAILURE", hide = true, default_value = "")]
    #[arg(value_parser = injection)]
    inject: Injection,
}

impl TestingArgs {
    pub(crate) fn apply(self, config: &mut RunConfig) {
        config.kernels = self.kernels;
        config.profile = self.profile;
        config.injection = self.inject;
    }
}

/// Parses kernels. Refuses an instruction set that the CPU does not have, by `has`.
fn kernels(text: &str, has: impl Fn(Isa) -> bool) -> Result<Kernels, String> {
    match text.parse::<Kernels>() {
        Ok(Kernels::Own(isa)) if !has(isa) => Err(format!("this CPU has no {isa}")),
        parsed => parsed.map_err(|error| error.to_string()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_the_cpu_cannot_run_are_refused() {
        let has = |isa| isa <= Isa::Avx2;
        assert_eq!(kernels("avx2", has), Ok(Kernels::Own(Isa::Avx2)));
        assert_eq!(kernels("libtorch", has), Ok(Kernels::Libtorch));
        let refused = Err("this CPU has no avx512".to_owned());
        assert_eq!(kernels("avx512", has), refused);
        assert!(kernels("avx1024", has).is_err());
    }
}
