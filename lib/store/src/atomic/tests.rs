use std::os::unix::fs::PermissionsExt;

use plmkit_contract::{Exit, Failure};

use super::*;
use crate::hidden_name::under_construction;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("folder");
    entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[test]
fn dropped_unfinished_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("write");
    let mut file = AtomicFile::create(&path).expect("create");
    file.write_all(b"new").expect("write");
    assert!(
        names(folder.path())
            .iter()
            .any(|name| under_construction(name).is_some())
    );
    drop(file);
    assert_eq!(fs::read_to_string(&path).expect("read"), "old");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_suspended_file_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    let mut file = AtomicFile::create(&path).expect("create");
    file.write_all(b"one ").expect("write");
    file.suspend().expect("suspend");
    file.write_all(b"two").expect("write");
    file.suspend().expect("suspend");
    file.finish().expect("finish");
    assert_eq!(fs::read_to_string(&path).expect("read"), "one two");
}

#[test]
fn mode_follows_the_umask_as_for_any_new_file() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (ours, plain) = (folder.path().join("a"), folder.path().join("b"));
    AtomicFile::create(&ours)
        .expect("create")
        .finish()
        .expect("finish");
    fs::write(&plain, "").expect("write");
    assert_eq!(mode(&ours), mode(&plain));
}

#[test]
fn one_process_at_a_time_writes_a_file() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    let first = AtomicFile::create(&path).expect("create");
    let error = AtomicFile::create(&path).expect_err("the first is not done");
    assert_eq!(error.exit(), Exit::Transient);
    first.finish().expect("finish");
    AtomicFile::create(&path).expect("create");
}

#[test]
fn what_appeared_in_the_meantime_is_not_replaced() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    let file = AtomicFile::create(&path).expect("create");
    fs::write(&path, "precious").expect("write");
    let error = file.finish().expect_err("it was not there before");
    assert_eq!(error.exit(), Exit::CannotCreate, "{error}");
    assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_name_that_another_writer_has_by_now_is_left_to_it() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    let file = AtomicFile::create(&path).expect("create");
    let temporary = folder.path().join(".a.plmkit-tmp");
    fs::remove_file(&temporary).expect("remove");
    fs::write(&temporary, "half of another").expect("write");
    let error = file.finish().expect_err("the name is lost");
    assert_eq!(error.exit(), Exit::Transient);
    assert!(!path.exists());
}

#[test]
fn a_folder_or_a_file_that_was_removed_is_no_other_writer() {
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
fn what_a_killed_process_left_is_replaced_with_its_mode() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a");
    let left = folder.path().join(".a.plmkit-tmp");
    fs::write(&left, "half of something").expect("write");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o600)).expect("mode");
    let mut file = AtomicFile::create(&path).expect("create");
    file.write_all(b"new").expect("write");
    file.finish().expect("finish");
    assert_eq!(fs::read_to_string(&path).expect("read"), "new");
    assert_eq!(names(folder.path()), ["a"]);
    fs::write(folder.path().join("plain"), "").expect("write");
    assert_eq!(mode(&path), mode(&folder.path().join("plain")));
}

#[test]
fn a_link_keeps_pointing_and_a_device_stays() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (file, link) = (folder.path().join("a"), folder.path().join("link"));
    fs::write(&file, "old").expect("write");
    std::os::unix::fs::symlink("a", &link).expect("link");
    let mut new = AtomicFile::create(&link).expect("create");
    new.write_all(b"new").expect("write");
    new.finish().expect("finish");
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).expect("read"), "new");
    let error = AtomicFile::create(Path::new("/dev/null")).expect_err("a device");
    assert!(error.to_string().contains("not a regular file"), "{error}");
    assert_eq!(error.exit(), Exit::CannotCreate);
}

#[test]
fn what_cannot_be_a_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("temp folder");
    let long = "x".repeat(NAME_BYTES + 1);
    for name in ["no/a", "", "new/", &long] {
        let error = AtomicFile::create(&folder.path().join(name)).expect_err(name);
        assert_eq!(error.exit(), Exit::CannotCreate, "{name}");
    }
}
