//! Files that a command line names more than once.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use plmkit_contract::{Exit, io_text, is_stream, path_text};

use crate::Fault;

/// A file of a command line: what a message calls it, its option as a rule, and its path.
pub type NamedPath<'a> = (&'a str, &'a Path);

/// Symbolic links that are followed: as many as Linux does.
const LINKS: usize = 40;

/// Reads the path of an option that takes neither standard input nor standard output: all but `-`.
pub fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path == *"-" {
            Err("expected a file, found the name of a standard stream; ./- is a file of that name")
        } else {
            Ok(path)
        }
    })
}

/// Reads one of `values` as it prints itself, so that the command line and the metadata of files spell it alike.
pub fn one_of<T, const N: usize>(values: [T; N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Display + Send + Sync + 'static,
{
    let names = values.map(|value| value.to_string());
    PossibleValuesParser::new(names).try_map(move |text| {
        let mut values = values.into_iter();
        let found = values.find(|value| value.to_string() == text);
        found.ok_or("expected one of the possible values")
    })
}

/// Whether the name of a path begins with a dot: readers of a folder pass over it.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_bytes().starts_with(b"."))
}

/// The files of a folder whose names end with one of the `extensions`, in the order of their names. Hidden ones are nobody's input.
pub fn files_in(folder: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let known = |found| extensions.iter().any(|&extension| found == extension);
        if !is_hidden(&path) && path.extension().is_some_and(known) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The files that `paths` name: a folder stands for the [files in it](files_in) with one of these extensions, of which there
/// has to be one.
pub fn files_of(paths: Vec<PathBuf>, extensions: &[&str]) -> Result<Vec<PathBuf>, Fault> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        if !path.is_dir() {
            files.push(path);
            continue;
        }
        let missing = |what: &dyn std::fmt::Display| {
            Fault::new(Exit::NoInput, format!("{}: {what}", path_text(&path)))
        };
        let found = files_in(&path, extensions).map_err(|error| missing(&io_text(&error)))?;
        if found.is_empty() {
            return Err(missing(&format_args!(
                "expected files named *.{} in this folder, found none",
                extensions.join(" or *.")
            )));
        }
        files.extend(found);
    }
    Ok(files)
}

/// A fault unless each of the outputs can be renamed to its path when it is complete.
pub fn keep_renameable(outputs: &[NamedPath]) -> Result<(), Fault> {
    match outputs.iter().find(|(_, path)| is_stream(path)) {
        Some((name, path)) => Err(Fault::new(
            Exit::CannotCreate,
            format!(
                "{name} {}: expected a place for a file, which is renamed to it when it is complete; found a device or a pipe",
                path_text(path)
            ),
        )),
        None => Ok(()),
    }
}

/// A usage fault if writing an output would destroy an input or another output, or if its name is one that plmkit gives
/// to what is unfinished, which a later run removes; a fault if there is a folder in its place.
///
/// Two paths are the same file if they lead to the same inode, or, where nothing is there yet, to the same name in
/// the same folder; symbolic links are followed. Nothing is opened.
///
/// ```
/// use std::path::Path;
/// use plmkit_cli::keep_apart;
///
/// let (batches, out) = (Path::new("b.arrow"), Path::new("e.parquet"));
/// assert!(keep_apart(&[("the batches", batches)], &[("--out", out)]).is_ok());
///
/// let report = Path::new("./e.parquet");
/// let fault = keep_apart(&[("the batches", batches)], &[("--out", out), ("--report", report)]).unwrap_err();
/// assert_eq!(fault.message(), "--report and --out are the same file");
/// ```
pub fn keep_apart(inputs: &[NamedPath], outputs: &[NamedPath]) -> Result<(), Fault> {
    let identified = |&(name, path): &_| (name, Identity::from_path(path));
    let unfinished = |path: &Path| is_of_unfinished(path) || is_of_unfinished(&resolved(path));
    if let Some((output, path)) = outputs.iter().find(|(_, path)| unfinished(path)) {
        let path = path_text(path);
        return Err(Fault::usage(format!(
            "{output} {path}: expected a name that plmkit does not give to unfinished files"
        )));
    }
    if let Some((_, path)) = outputs.iter().find(|(_, path)| path.is_dir()) {
        let path = path_text(path);
        return Err(Fault::new(
            Exit::CannotCreate,
            format!("{path}: cannot create: is a directory"),
        ));
    }
    let mut known: Vec<(&str, Identity)> = inputs.iter().map(identified).collect();
    let outputs = outputs.iter().filter(|(_, path)| !is_device(path));
    for (output, identity) in outputs.map(identified) {
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == identity) {
            return Err(Fault::usage(format!(
                "{output} and {other} are the same file"
            )));
        }
        known.push((output, identity));
    }
    Ok(())
}

/// Whether a path is that of a temporary file, or in a folder of parts: `.NAME.plmkit-…`.
fn is_of_unfinished(path: &Path) -> bool {
    path.iter().any(|name| {
        let name = name.to_string_lossy();
        name.starts_with('.') && name.contains(".plmkit-")
    })
}

/// A terminal or `/dev/null` takes several outputs.
fn is_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_char_device())
}

/// What makes two paths the same file.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode of what is there.
    There(u64, u64),
    /// Where it will be, with the links in its folder's path resolved.
    ToCome(PathBuf),
}

impl Identity {
    fn from_path(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(found) => Self::There(found.dev(), found.ino()),
            Err(_) => Self::ToCome(resolved(path)),
        }
    }
}

/// The path at the end of links that lead nowhere yet, in a folder as the system names it.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    let path = absolute(&path).unwrap_or(path);
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn one_file_by_two_paths_is_refused_and_named() {
        let folder = tempfile::tempdir().expect("temp folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("folder");
        for name in ["in", "other"] {
            fs::write(at(name), name).expect("write");
        }
        fs::hard_link(at("in"), at("hard")).expect("link");
        symlink("in", at("soft")).expect("link");
        symlink("sub/new", at("dangling")).expect("link");
        symlink("sub", at("folder")).expect("link");
        symlink("loop", at("loop")).expect("link");

        let refused = |inputs: &[&str], outputs: &[&str]| {
            let paths = [inputs, outputs].map(|names| names.iter().map(|name| at(name)).collect());
            let [inputs, outputs] = paths.each_ref().map(|paths: &Vec<PathBuf>| {
                let named = paths.iter().map(|path| ("a file", path.as_path()));
                named.collect::<Vec<NamedPath>>()
            });
            keep_apart(&inputs, &outputs).is_err()
        };
        for same in ["in", "./in", "sub/../in", "hard", "soft"] {
            assert!(refused(&["other", "in"], &["new", same]), "{same}");
        }
        for same in ["sub/new", "folder/new", "dangling", "sub/./new"] {
            assert!(refused(&[], &["sub/new", same]), "{same}");
        }
        assert!(
            !refused(&["in", "hard"], &["new", "other"]),
            "inputs may be the same"
        );
        assert!(!refused(&["in"], &["sub/in", "loop", "no/folder/in"]));
        assert!(refused(&[], &[".e.parquet.plmkit-tmp"]));
        assert!(refused(&[], &[".e.parquet.plmkit-run/lock"]));
        assert!(!refused(&[], &[".e.parquet", "e.plmkit-tmp"]));
    }
}
