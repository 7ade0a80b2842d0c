use std::fs;

use super::*;

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = &bytes[at..at + size];
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| (value << 8) | u64::from(byte))
}

/// The text of a reference.
fn text<'f>(file: &'f [u8], reference: &[u8]) -> &'f [u8] {
    let [length, heap] = [(0, 4), (4, 8)].map(|(at, size)| number(reference, at, size) as usize);
    let index = number(reference, 12, 4);
    if index == 0 {
        assert_eq!((length, heap), (0, 0));
        return b"";
    }
    assert_eq!(&file[heap..heap + 4], b"GCOL");
    let end = heap + number(file, heap + 8, 8) as usize;
    let mut at = heap + 16;
    while at < end {
        let size = number(file, at + 8, 8) as usize;
        if number(file, at, 2) == index {
            assert_eq!(size, length);
            return &file[at + 16..at + 16 + size];
        }
        at += 16 + size.next_multiple_of(8);
    }
    panic!("no text {index} in the heap at {heap}");
}

/// The names below a node of a group's tree, in order, each with the address of its object.
fn names(file: &[u8], node: usize, heap: usize) -> Vec<(&[u8], u64)> {
    assert_eq!(&file[node..node + 4], b"TREE");
    let is_leaf = file[node + 5] == 0;
    let children = (0..number(file, node + 6, 2) as usize)
        .map(|child| number(file, node + 32 + 16 * child, 8) as usize);
    let mut found = Vec::new();
    for child in children {
        if !is_leaf {
            found.extend(names(file, child, heap));
            continue;
        }
        assert_eq!(&file[child..child + 4], b"SNOD");
        for entry in 0..number(file, child + 6, 2) as usize {
            let at = child + 8 + 40 * entry;
            let name = &file[heap + number(file, at, 8) as usize..];
            let end = name.iter().position(|&byte| byte == 0).expect("an end");
            found.push((&name[..end], number(file, at + 8, 8)));
        }
    }
    found
}

#[test]
fn texts_have_references_however_many_are_empty() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("texts.h5");
    let long = "x".repeat(3 * HEAP_BYTES);
    let texts: Vec<&str> = (0..140_000)
        .map(|row| match row {
            69_999 => &long,
            _ if row % 7_000 == 1 => "a protein",
            _ => "",
        })
        .collect();
    let mut writer = Hdf5Writer::create(&path, false).expect("create");
    let references = writer.texts(texts.iter().copied()).expect("write");
    let root = writer.group(&BTreeMap::new(), &[]).expect("write");
    writer.finish(root).expect("finish");
    let file = fs::read(&path).expect("a file");
    let found = references
        .chunks(16)
        .map(|reference| text(&file, reference));
    assert!(found.eq(texts.iter().map(|text| text.as_bytes())));
}

#[test]
fn a_group_of_many_members_has_them_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().expect("temp folder");
    // A full leaf, and one member more; a full node of leaves, and one more.
    for count in [0, 1, 64, 65, 16_384, 16_385, 40_000] {
        let path = folder.path().join(format!("{count}.h5"));
        let mut writer = Hdf5Writer::create(&path, false).expect("create");
        let members: BTreeMap<String, Object> = (0..count)
            .map(|member| (format!("P{member}é"), Object(8 * member)))
            .collect();
        let root = writer.group(&members, &[]).expect("write");
        writer.finish(root).expect("finish");
        let file = fs::read(&path).expect("a file");
        assert_eq!(number(&file, 40, 8), file.len() as u64);
        // The header of the root: 16 bytes, then the message with the addresses of its tree and its names.
        let message = number(&file, 64, 8) as usize + 24;
        let [tree, heap] = [message, message + 8].map(|at| number(&file, at, 8) as usize);
        let found = names(&file, tree, number(&file, heap + 24, 8) as usize);
        let expected: Vec<(&[u8], u64)> = members
            .iter()
            .map(|(name, object)| (name.as_bytes(), object.0))
            .collect();
        assert!(found == expected, "{count}");
    }
}

#[test]
fn a_file_that_is_not_finished_does_not_appear() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("a.h5");
    let mut writer = Hdf5Writer::create(&path, false).expect("create");
    let address = writer.reserve(1 << 20);
    writer.write(address, &[1; 1000]).expect("write");
    let names = || fs::read_dir(folder.path()).expect("folder").count();
    assert!(!path.exists());
    drop(writer);
    assert_eq!(names(), 0);
    let error = Hdf5Writer::create(&folder.path().join("none/a.h5"), false).err();
    let error = error.expect("no folder").to_string();
    assert!(error.contains("none/a.h5: cannot create"), "{error}");
}
