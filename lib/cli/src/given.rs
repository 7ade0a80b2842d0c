//! Options, and which of them were given.

use std::ffi::{OsStr, OsString};
use std::ops::{Deref, DerefMut};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};
use plmkit_kit::Fault;

use crate::program::fault;

/// Options of a program that another one takes, too, with the words of those that were given.
#[derive(Clone, Debug)]
pub struct Given<T> {
    pub options: T,
    /// One for each value, such as `--pool=mean,max`.
    pub words: Vec<OsString>,
}

impl<T: Args> Given<T> {
    /// Parses words that were kept.
    ///
    /// # Errors
    /// They are no options of this program.
    pub fn parse<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, Fault> {
        let command = Self::augment_args(Command::new("options").no_binary_name(true));
        let matches = command.try_get_matches_from(words);
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| fault(&error))
    }

    /// Whether an option was given, such as `--pool`.
    pub fn has(&self, option: &str) -> bool {
        self.words.iter().any(|word| name(word) == option)
    }

    /// The words on one line, quoted as a shell reads them.
    pub fn line(&self) -> String {
        let words = self.words.iter().map(|word| word.to_string_lossy());
        let quoted = words.map(|word| match word.split_once('=') {
            // Another word with a hyphen would be an option.
            Some((name, value)) if !value.starts_with('-') => format!("{name} {}", quoted(value)),
            _ => quoted(&word),
        });
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// A word as a shell reads it. A NUL cannot be in an argument.
fn quoted(word: &str) -> String {
    let quoted = shlex::try_quote(word);
    quoted.map_or_else(|_| String::new(), Into::into)
}

impl<T> Deref for Given<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.options
    }
}

/// The words stay those that were given.
impl<T> DerefMut for Given<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.options
    }
}

/// The option in a word.
fn name(word: &OsStr) -> &str {
    let bytes = word.as_encoded_bytes();
    let name = bytes.split(|&byte| byte == b'=').next();
    str::from_utf8(name.unwrap_or_default()).unwrap_or_default()
}

impl<T: Args> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        let words = words(&T::augment_args(Command::new("options")), matches);
        let options = T::from_arg_matches_mut(matches)?;
        Ok(Self { options, words })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Args for Given<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

/// The words of the options of a command that were given.
fn words(command: &Command, matches: &ArgMatches) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let option = format!("--{}", arg.get_long().unwrap_or(id));
        if !arg.get_action().takes_values() {
            words.push(option.into());
            continue;
        }
        for values in matches.get_raw_occurrences(id).into_iter().flatten() {
            let values: Vec<&OsStr> = values.collect();
            let mut word = OsString::from(format!("{option}="));
            word.push(values.join(OsStr::new(",")));
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnArgs;

    #[test]
    fn the_words_of_options_are_those_that_were_given() {
        let given = [
            "--layers",
            "-1,0",
            "--residues",
            "--pool",
            "max,mean",
            "--scores",
        ];
        let expected = [
            "--pool=max,mean",
            "--layers=-1,0",
            "--residues",
            "--scores=wild-type",
        ];
        let parsed = Given::<ColumnArgs>::parse(given).expect("options");
        assert_eq!(parsed.words, expected);
        assert!(parsed.has("--residues") && !parsed.has("--logits"));
        let line = "--pool 'max,mean' '--layers=-1,0' --residues --scores wild-type";
        assert_eq!(parsed.line(), line);
        let again = Given::<ColumnArgs>::parse(&parsed.words).expect("the same");
        assert_eq!(again.words, expected);
        assert!(Given::<ColumnArgs>::parse(["--residues=1"]).is_err());
        assert!(Given::<ColumnArgs>::parse(["--pools", "mean"]).is_err());
    }
}
