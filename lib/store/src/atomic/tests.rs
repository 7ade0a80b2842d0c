use std::os::unix::fs::PermissionsExt;

use plmkit_kit::{Exit, Failure};
use tempfile::TempDir;

use super::*;
use crate::hidden_name::strip_temporary_suffix;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("folder");
    let names = entries.map(|entry| entry.expect("entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Creates a folder, with the path of a file `a` in it that does not exist.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    (folder, path)
}

fn create(path: &Path) -> AtomicFile {
    AtomicFile::create(path).expect("create")
}

/// Expects that the only file is `a`, with this text.
fn assert_only(folder: &TempDir, text: &str) {
    let found = fs::read_to_string(folder.path().join("a"));
    assert_eq!(found.expect("read"), text);
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn an_unfinished_file_is_removed_on_drop_and_the_old_file_stays() {
    let (folder, path) = folder();
    fs::write(&path, "old").expect("write");
    let mut file = create(&path);
    file.write_all(b"new").expect("write");
    let names = names(folder.path());
    assert!(
        names
            .iter()
            .any(|name| strip_temporary_suffix(name).is_some())
    );
    drop(file);
    assert_only(&folder, "old");
}

#[test]
fn a_suspended_file_continues() {
    let (folder, path) = folder();
    let mut file = create(&path);
    for text in ["one ", "two"] {
        file.write_all(text.as_bytes()).expect("write");
        file.suspend().expect("suspend");
    }
    file.finish().expect("finish");
    assert_only(&folder, "one two");
}

#[test]
fn one_process_at_a_time_writes_a_file() {
    let (_folder, path) = folder();
    let first = create(&path);
    let error = AtomicFile::create(&path).expect_err("the first is unfinished");
    assert_eq!(error.exit(), Exit::Transient);
    first.finish().expect("finish");
    drop(create(&path));
}

#[test]
fn a_file_that_appeared_in_the_meantime_is_not_replaced() {
    let (folder, path) = folder();
    let file = create(&path);
    fs::write(&path, "precious").expect("write");
    let error = file.finish().expect_err("the file is new");
    assert_eq!(error.exit(), Exit::CannotCreate, "{error}");
    assert_only(&folder, "precious");
}

#[test]
fn a_temporary_file_of_another_writer_is_not_renamed() {
    let (folder, path) = folder();
    let file = create(&path);
    let temporary = folder.path().join(".a.plmkit-tmp");
    fs::remove_file(&temporary).expect("remove");
    fs::write(&temporary, "half of another").expect("write");
    let error = file.finish().expect_err("the name is lost");
    assert_eq!(error.exit(), Exit::Transient);
    assert!(!path.exists());
}

#[test]
fn a_removed_folder_or_temporary_file_is_an_io_error() {
    let removals: [fn(&Path); 2] = [
        |folder| fs::remove_dir_all(folder).expect("remove"),
        |folder| fs::remove_file(folder.join(".a.plmkit-tmp")).expect("remove"),
    ];
    for (remove, suspended) in removals.into_iter().zip([false, true]) {
        let outer = tempfile::tempdir().expect("temp folder");
        let folder = outer.path().join("folder");
        fs::create_dir(&folder).expect("folder");
        let mut file = AtomicFile::create(&folder.join("a")).expect("create");
        if suspended {
            file.suspend().expect("suspend");
        }
        remove(&folder);
        let error = file.finish().expect_err("it is gone");
        assert_eq!(error.exit(), Exit::Io);
        let what = "folder/a: cannot write: the unfinished file, or its folder, was removed";
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn the_temporary_file_of_a_killed_process_is_replaced_with_its_mode() {
    let (folder, path) = folder();
    let temporary = folder.path().join(".a.plmkit-tmp");
    fs::write(&temporary, "half of something").expect("write");
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).expect("mode");
    let mut file = create(&path);
    file.write_all(b"new").expect("write");
    file.finish().expect("finish");
    assert_only(&folder, "new");
    // The mode follows the umask.
    let plain = folder.path().join("plain");
    fs::write(&plain, "").expect("write");
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn a_link_stays_and_a_device_is_refused() {
    let (folder, path) = folder();
    let link = folder.path().join("link");
    fs::write(&path, "old").expect("write");
    std::os::unix::fs::symlink("a", &link).expect("link");
    let mut file = create(&link);
    file.write_all(b"new").expect("write");
    file.finish().expect("finish");
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&path).expect("read"), "new");
    let error = AtomicFile::create(Path::new("/dev/null")).expect_err("a device");
    assert!(error.to_string().contains("not a regular file"), "{error}");
    assert_eq!(error.exit(), Exit::CannotCreate);
}

#[test]
fn invalid_paths_are_refused_at_once() {
    let folder = tempfile::tempdir().expect("temp folder");
    let long = "x".repeat(NAME_BYTES + 1);
    for name in ["no/a", "", "new/", &long] {
        let error = AtomicFile::create(&folder.path().join(name)).expect_err(name);
        assert_eq!(error.exit(), Exit::CannotCreate, "{name}");
    }
}
