//! Generates man pages and shell completions from the definitions of the options.

use std::io;

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

/// A generated text.
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

/// Generates the text `what` for `command`.
pub(crate) fn generate(what: Generate, mut command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let shell = match what {
        Generate::Man => {
            man(command, &mut text)?;
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

/// Writes one man page, which includes the options of all subcommands.
fn man(command: Command, text: &mut Vec<u8>) -> io::Result<()> {
    if !command.has_subcommands() {
        return Man::new(command).render(text);
    }
    // The page replaces the subcommand `help`.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
    let page = Man::new(command);
    page.render_title(text)?;
    page.render_name_section(text)?;
    page.render_synopsis_section(text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    for subcommand in subcommands.into_iter().filter(|one| !one.is_hide_set()) {
        let name = subcommand.get_bin_name().unwrap_or(subcommand.get_name());
        let heading = format!(".SH \"{}\"\n", name.to_uppercase());
        let mut sections = Vec::new();
        // Common options are at the top of the page.
        let without_common = subcommand.mut_args(|arg| {
            let common = arg.is_global_set() || arg.get_id() == "help";
            if common { arg.hide(true) } else { arg }
        });
        let part = Man::new(without_common);
        part.render_synopsis_section(&mut sections)?;
        part.render_description_section(&mut sections)?;
        part.render_options_section(&mut sections)?;
        text.extend_from_slice(heading.as_bytes());
        text.extend_from_slice(&as_subsections(&sections));
    }
    page.render_version_section(text)?;
    *text = with_one_preamble(text);
    Ok(())
}

/// Removes the repetitions of the two-line preamble, which defines apostrophes.
fn with_one_preamble(page: &[u8]) -> Vec<u8> {
    let page = String::from_utf8_lossy(page);
    let lines = page.split_inclusive('\n').enumerate();
    let kept = lines.filter(|(number, line)| *number < 2 || !line.contains(" .ds Aq "));
    kept.map(|(_, line)| line).collect::<String>().into_bytes()
}

/// Turns sections into subsections.
fn as_subsections(sections: &[u8]) -> Vec<u8> {
    let sections = String::from_utf8_lossy(sections);
    let lines = sections.split_inclusive('\n').map(|line| {
        let heading = line.strip_prefix(".SH ");
        heading.map_or_else(|| line.to_owned(), |heading| format!(".SS {heading}"))
    });
    lines.collect::<String>().into_bytes()
}
