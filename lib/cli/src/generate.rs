//! Man pages and shell completions, made from the definitions of the options.

use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generate {
    /// A man page in roff
    Man,
    /// Completions for bash
    CompleteBash,
    /// Completions for zsh
    CompleteZsh,
    /// Completions for fish
    CompleteFish,
}

/// The text of `what` for `command`.
pub(crate) fn generate(what: Generate, mut command: Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let shell = match what {
        Generate::Man => {
            clap_mangen::Man::new(command).render(&mut text)?;
            return Ok(text);
        }
        Generate::CompleteBash => Shell::Bash,
        Generate::CompleteZsh => Shell::Zsh,
        Generate::CompleteFish => Shell::Fish,
    };
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut text);
    Ok(text)
}
