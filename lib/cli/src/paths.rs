//! Paths on the command line.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};

use clap::builder::{PathBufValueParser, TypedValueParser};
use plmkit_kit::{Exit, is_stream, path_text};
use plmkit_store::{FileKind, Replaceable, files_in, is_report_or_free, read_input};

use crate::Fault;

/// A path of a command line, with its name in messages (usually its option).
pub type NamedPath<'a> = (&'a str, &'a Path);

/// The most symbolic links that are followed, as in Linux.
const LINKS: usize = 40;

/// Parses a path other than `-`, for options that take no standard stream. A path that begins with `-` begins with `./-` from then on:
/// a program that it is passed to would take it for an option.
pub fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path == *"-" {
            Err("expected a file, found the name of a standard stream; ./- is a file of that name")
        } else if path.as_os_str().as_bytes().starts_with(b"-") {
            Ok(Path::new(".").join(path))
        } else {
            Ok(path)
        }
    })
}

/// Replaces each folder in `paths` by the [files in it](files_in) with one of these extensions, and each `@FILE` by what FILE
/// lists, one path on each line. A folder without such files, and a list without lines, is a fault.
pub fn files_of(paths: Vec<PathBuf>, extensions: &[&str]) -> Result<Vec<PathBuf>, Fault> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        match list_of(&path) {
            Some(list) => {
                for listed in listed_in(list)? {
                    add_files(&mut files, listed, extensions)?;
                }
            }
            None => add_files(&mut files, path, extensions)?,
        }
    }
    Ok(files)
}

/// The lists in the arguments of [`files_of`]: FILE of each `@FILE`.
pub fn lists_of<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let lists = paths.into_iter().filter_map(|path| list_of(path));
    lists.map(Path::to_owned).collect()
}

fn list_of(path: &Path) -> Option<&Path> {
    let list = path.as_os_str().as_bytes().strip_prefix(b"@")?;
    Some(Path::new(OsStr::from_bytes(list)))
}

/// Adds a file, or the files of a folder.
fn add_files(files: &mut Vec<PathBuf>, path: PathBuf, extensions: &[&str]) -> Result<(), Fault> {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    let found = files_in(&path, extensions);
    let found = found.map_err(|error| Fault::of_system(Exit::NoInput, path_text(&path), &error))?;
    if found.is_empty() {
        let names = extensions.join(" or *.");
        let what = format!("expected files named *.{names} in this folder, found none");
        return Err(Fault::of_path(Exit::NoInput, &path, &what));
    }
    files.extend(found);
    Ok(())
}

/// The paths in a list, relative to the working directory.
fn listed_in(list: &Path) -> Result<Vec<PathBuf>, Fault> {
    if list.as_os_str().is_empty() {
        return Err(Fault::usage("@: expected the name of a list after it"));
    }
    let text = read_input(list)?;
    let lines = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let lines = lines.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let paths = lines.filter(|line| !line.is_empty());
    let paths: Vec<PathBuf> = paths.map(|line| OsStr::from_bytes(line).into()).collect();
    if paths.is_empty() {
        return Err(Fault::of_path(
            Exit::NoInput,
            list,
            "expected one path on each line, found none",
        ));
    }
    Ok(paths)
}

/// Checks that each output can be renamed to its path: that it is no stream.
pub fn ensure_no_stream(outputs: &[NamedPath]) -> Result<(), Fault> {
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

/// Checks that no output is an input, another output, a folder, or a temporary file of plmkit, which a later run would remove.
/// Checks that no input is such a temporary file beside an output: this run would remove it.
///
/// An input is a file, or a folder that no output may be in.
///
/// Two paths are the same file if they have the same inode, or, for new files, the same name in the same folder. Symbolic links
/// are followed. Nothing is opened.
///
/// ```
/// use std::path::Path;
/// use plmkit_cli::ensure_distinct;
///
/// let (batches, out) = (Path::new("b.arrow"), Path::new("e.parquet"));
/// assert!(ensure_distinct(&[("the batches", batches)], &[("--out", out)]).is_ok());
///
/// let report = Path::new("./e.parquet");
/// let fault = ensure_distinct(&[("the batches", batches)], &[("--out", out), ("--report", report)]).unwrap_err();
/// assert_eq!(fault.message(), "--report and --out are the same file");
/// ```
pub fn ensure_distinct(inputs: &[NamedPath], outputs: &[NamedPath]) -> Result<(), Fault> {
    let identified = |&(name, path): &_| (name, identity(path));
    let temporary = |path: &Path| is_temporary(path) || is_temporary(&resolved(path));
    if let Some((output, path)) = outputs.iter().find(|(_, path)| temporary(path)) {
        let path = path_text(path);
        return Err(Fault::usage(format!(
            "{output} {path}: expected a name that plmkit does not give to unfinished files"
        )));
    }
    if let Some((_, path)) = outputs.iter().find(|(_, path)| path.is_dir()) {
        let what = "cannot create: is a directory";
        return Err(Fault::of_path(Exit::CannotCreate, path, what));
    }
    let mut known: Vec<_> = inputs.iter().map(identified).collect();
    let files = outputs.iter().filter(|(_, path)| !is_device(path));
    for (output, identity) in files.map(identified) {
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == identity) {
            let what = format!("{output} and {other} are the same file");
            return Err(Fault::usage(what));
        }
        known.push((output, identity));
    }
    let mut files = outputs.iter().filter(|(_, path)| !is_stream(path));
    files.try_for_each(|output| ensure_outside_folders(inputs, *output))
}

/// Checks that an output is in no input that is a folder, and that no input is an unfinished file in the folder of the output.
fn ensure_outside_folders(inputs: &[NamedPath], (output, path): NamedPath) -> Result<(), Fault> {
    let place = resolved(path);
    let folder = place.parent().unwrap_or(&place);
    for (name, input) in inputs {
        let (shown, found) = (path_text(input), resolved(input));
        if input.is_dir() && input.canonicalize().is_ok_and(|of| place.starts_with(of)) {
            return Err(Fault::usage(format!(
                "{output} {}: expected a place outside the folder of {name}, {shown}",
                path_text(path)
            )));
        }
        let beside = found.strip_prefix(folder).ok();
        let beside = beside.and_then(|below| below.iter().next());
        if beside.is_some_and(|name| is_temporary(name.as_ref())) {
            return Err(Fault::usage(format!(
                "{name} {shown}: has the name of an unfinished file, which {output} removes; expected another name"
            )));
        }
    }
    Ok(())
}

/// Checks that outputs replace files of their own kind alone.
pub fn ensure_same_kind(outputs: &[NamedPath], own: Replaceable) -> Result<(), Fault> {
    keep(outputs, |path| own.includes(path))
}

/// Checks that reports replace reports alone.
pub fn ensure_reports(outputs: &[NamedPath]) -> Result<(), Fault> {
    keep(outputs, is_report_or_free)
}

fn keep(outputs: &[NamedPath], may_replace: impl Fn(&Path) -> bool) -> Result<(), Fault> {
    let mut outputs = outputs.iter();
    let kept = outputs.find(|(_, path)| !may_replace(path));
    kept.map_or(Ok(()), |(option, path)| {
        let kind = FileKind::detect(path).map(|kind| kind.to_string());
        let kind = kind.unwrap_or_else(|| "a file of other data".to_owned());
        let what = if path.exists() {
            format!("exists, and is {kind}, which nothing replaces")
        } else {
            "a name of plmkit's own files: expected another".to_owned()
        };
        let what = format!("{option} {}: {what}", path_text(path));
        Err(Fault::new(Exit::CannotCreate, what))
    })
}

/// Whether a path is a temporary file or in a folder of an unfinished run: `.NAME.plmkit-…`.
fn is_temporary(path: &Path) -> bool {
    path.iter().any(|name| {
        let name = name.to_string_lossy();
        name.starts_with('.') && name.contains(".plmkit-")
    })
}

/// Whether a path is a terminal or `/dev/null`, which accept several outputs.
fn is_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_char_device())
}

/// Returns the device and inode of an existing file, or the resolved path of a new one. Equal values are the same file.
fn identity(path: &Path) -> Result<(u64, u64), PathBuf> {
    let found = fs::metadata(path).map_err(|_| resolved(path))?;
    Ok((found.dev(), found.ino()))
}

/// Resolves a path whose last names do not exist: follows links, and canonicalizes the folder.
pub fn resolved(path: &Path) -> PathBuf {
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
    let mut folders = path.ancestors().skip(1);
    let found = folders.find_map(|folder| {
        let rest = path.strip_prefix(folder).ok()?;
        Some(folder.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_path() {
        let list = tempfile::NamedTempFile::new().expect("temp file");
        for (text, first) in [
            ("\u{feff}a\r\nb\n", "a"),
            ("\u{feff}\u{feff}a\nb", "\u{feff}a"),
        ] {
            fs::write(list.path(), text).expect("write");
            let paths = listed_in(list.path()).expect("two paths");
            assert_eq!(paths, [first, "b"].map(PathBuf::from));
        }
    }

    #[test]
    fn two_paths_of_one_file_are_refused() {
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
            ensure_distinct(&inputs, &outputs).is_err()
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

        // Inputs that are folders, and inputs that are named like unfinished files.
        for within in [
            "sub/new",
            "folder/new",
            "sub/no/such/folder/new",
            "dangling",
        ] {
            assert!(refused(&["sub"], &["new", within]), "{within}");
            assert!(refused(&["folder/."], &[within]), "{within}");
        }
        assert!(!refused(&["sub"], &["new", "subway/new"]));
        for name in [".new.plmkit-tmp", ".plmkit-lock"] {
            fs::write(at(name), name).expect("write");
            symlink(at(name), at("sub/link")).expect("link");
            assert!(refused(&["in", name], &["new"]), "{name}");
            assert!(refused(&["sub/link"], &["new"]), "{name}");
            assert!(!refused(&[name], &["sub/new"]), "{name}");
            fs::remove_file(at("sub/link")).expect("remove");
        }
    }
}
