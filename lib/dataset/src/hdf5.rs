//! Writes HDF5 files: the part of the format that matrices, columns of text and groups need.
//!
//! Files are of the oldest version of the format, which every reader of HDF5 knows: superblock 0, object headers 1, contiguous
//! datasets, groups as B-trees. Datasets are written at any place in any order, so that memory does not grow with them. Texts are
//! of variable length, UTF-8, as h5py and anndata write them.
//!
//! Source: <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t11.html>.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use plmkit_store::{AtomicFile, StoreError};

/// An address that is none.
const UNDEFINED: u64 = u64::MAX;
const SUPERBLOCK_BYTES: u64 = 96;
/// Half of the entries of a leaf and of a node of a group's B-tree.
const LEAF_K: usize = 32;
const NODE_K: usize = 128;
/// The bytes of a heap of texts. Readers hold a whole heap in memory.
const HEAP_BYTES: usize = 1 << 16;
/// The most texts of a heap: their numbers are 16-bit.
const MOST_TEXTS: usize = u16::MAX as usize;
/// The least bytes of a heap.
const LEAST_HEAP_BYTES: usize = 1 << 12;

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    F16,
    F32,
    U32,
    I64,
    /// As h5py has it: an enumeration of one byte.
    Bool,
    /// Text, by [references](Hdf5Writer::texts).
    Text,
}

impl Type {
    /// Returns the bytes of a value.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Bool => 1,
            Self::F16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::I64 => 8,
            Self::Text => 16,
        }
    }

    /// Returns its datatype message.
    fn message(self) -> Vec<u8> {
        let of = |class: u8, bits: [u8; 3], properties: &[u8]| {
            let size = (self.bytes() as u32).to_le_bytes();
            [&[0x10 | class], &bits[..], &size, properties].concat()
        };
        match self {
            // Bit offset, precision; exponent and mantissa: place, bits; bias.
            Self::F16 => of(1, [0x20, 15, 0], &[0, 0, 16, 0, 10, 5, 0, 10, 15, 0, 0, 0]),
            Self::F32 => of(1, [0x20, 31, 0], &[0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0]),
            Self::U32 => of(0, [0; 3], &[0, 0, 32, 0]),
            Self::I64 => of(0, [8, 0, 0], &[0, 0, 64, 0]),
            Self::Bool => {
                let base = [0x10, 8, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
                of(
                    8,
                    [2, 0, 0],
                    &[&base[..], b"FALSE\0\0\0TRUE\0\0\0\0\0\x01"].concat(),
                )
            }
            Self::Text => of(9, [1, 1, 0], &[0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]),
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
}

/// The address of a group or a dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object(u64);

/// A file under construction.
pub(crate) struct Hdf5Writer {
    file: AtomicFile,
    /// The end of all reserved bytes.
    end: u64,
}

impl Hdf5Writer {
    /// Starts a file that will be at `path`. Without `force`, a file that is there must have the same bytes in the end.
    pub(crate) fn create(path: &Path, force: bool) -> Result<Self, StoreError> {
        Ok(Self {
            file: AtomicFile::create(path)?.keeping(!force),
            end: SUPERBLOCK_BYTES,
        })
    }

    /// Reserves bytes. Returns their address.
    pub(crate) fn reserve(&mut self, bytes: u64) -> u64 {
        let address = self.end;
        self.end += bytes.next_multiple_of(8);
        address
    }

    /// Writes bytes at an address.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_at(address, bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<u64, StoreError> {
        let address = self.reserve(bytes.len() as u64);
        self.write(address, bytes)?;
        Ok(address)
    }

    /// Writes texts. Returns a reference to each, which are the values of a dataset.
    pub(crate) fn texts<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<Vec<u8>, StoreError> {
        let mut references = Vec::new();
        let mut heap = Heap::default();
        for text in texts {
            if heap.bytes.len() >= HEAP_BYTES || heap.lengths.len() == MOST_TEXTS {
                heap.finish(self, &mut references)?;
            }
            heap.push(text.as_bytes());
        }
        heap.finish(self, &mut references)?;
        Ok(references)
    }

    /// Adds a dataset whose values are at `address`.
    pub(crate) fn dataset(
        &mut self,
        kind: Type,
        shape: &[u64],
        address: u64,
        attributes: &[(&str, Attribute<'_>)],
    ) -> Result<Object, StoreError> {
        let bytes = shape.iter().product::<u64>() * kind.bytes();
        let address = if bytes == 0 { UNDEFINED } else { address };
        let layout = [&[3, 1][..], &address.to_le_bytes(), &bytes.to_le_bytes()].concat();
        let mut messages = vec![
            (0x01, dataspace(shape)),
            (0x03, kind.message()),
            // No fill value: all values are written.
            (0x05, vec![2, 2, 2, 0]),
            (0x08, layout),
        ];
        self.add_attributes(attributes, &mut messages)?;
        self.object(&messages)
    }

    /// Adds a group.
    pub(crate) fn group(
        &mut self,
        members: &BTreeMap<String, Object>,
        attributes: &[(&str, Attribute<'_>)],
    ) -> Result<Object, StoreError> {
        let (tree, names) = self.members(members)?;
        let table = [tree.to_le_bytes(), names.to_le_bytes()].concat();
        let mut messages = vec![(0x11, table)];
        self.add_attributes(attributes, &mut messages)?;
        self.object(&messages)
    }

    /// Completes the file, and publishes it.
    pub(crate) fn finish(mut self, root: Object) -> Result<(), StoreError> {
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        bytes.extend([0, 0, 0, 0, 0, 8, 8, 0]);
        bytes.extend((LEAF_K as u16).to_le_bytes());
        bytes.extend((NODE_K as u16).to_le_bytes());
        bytes.extend([0; 4]);
        for address in [0, UNDEFINED, self.end, UNDEFINED, 0, root.0] {
            bytes.extend(address.to_le_bytes());
        }
        bytes.extend([0; 24]);
        self.write(0, &bytes)?;
        // The file ends where the superblock says.
        self.file.set_len(self.end)?;
        self.file.finish()
    }

    fn add_attributes(
        &mut self,
        attributes: &[(&str, Attribute<'_>)],
        messages: &mut Vec<(u16, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for (name, value) in attributes {
            let (shape, texts): (&[u64], &[&str]) = match value {
                Attribute::Text(text) => (&[], &[text]),
                Attribute::Texts(texts) => (&[texts.len() as u64], texts),
            };
            let (kind, space) = (Type::Text.message(), dataspace(shape));
            let mut message = vec![1, 0];
            for size in [name.len() + 1, kind.len(), space.len()] {
                message.extend((size as u16).to_le_bytes());
            }
            for part in [name.as_bytes(), &kind, &space] {
                message.extend(part);
                if part == name.as_bytes() {
                    message.push(0);
                }
                pad(&mut message);
            }
            message.extend(self.texts(texts.iter().copied())?);
            messages.push((0x0c, message));
        }
        Ok(())
    }

    /// Writes an object header.
    fn object(&mut self, messages: &[(u16, Vec<u8>)]) -> Result<Object, StoreError> {
        let mut body = Vec::new();
        for (kind, message) in messages {
            let size = message.len().next_multiple_of(8);
            body.extend(kind.to_le_bytes());
            body.extend((size as u16).to_le_bytes());
            body.extend([0; 4]);
            body.extend(message);
            pad(&mut body);
        }
        let mut header = vec![1, 0];
        header.extend((messages.len() as u16).to_le_bytes());
        header.extend(1_u32.to_le_bytes());
        header.extend((body.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        header.extend(body);
        self.append(&header).map(Object)
    }

    /// Writes the members of a group. Returns the addresses of their B-tree and of the heap of their names.
    fn members(&mut self, members: &BTreeMap<String, Object>) -> Result<(u64, u64), StoreError> {
        let mut names = vec![0; 8];
        let mut children = Vec::new();
        let members: Vec<_> = members.iter().collect();
        // An empty group has an empty leaf.
        let empty: &[&[(&String, &Object)]] = &[&[]];
        let leaves: Vec<_> = members.chunks(2 * LEAF_K).collect();
        for leaf in if leaves.is_empty() { empty } else { &leaves } {
            let mut bytes = b"SNOD\x01\0".to_vec();
            bytes.extend((leaf.len() as u16).to_le_bytes());
            let mut last = 0_u64;
            for (name, object) in *leaf {
                last = names.len() as u64;
                names.extend(name.as_bytes());
                names.push(0);
                pad(&mut names);
                bytes.extend(last.to_le_bytes());
                bytes.extend(object.0.to_le_bytes());
                bytes.extend([0; 24]);
            }
            bytes.resize(8 + 2 * LEAF_K * 40, 0);
            children.push((self.append(&bytes)?, last));
        }
        let mut level = 0;
        loop {
            children = self.nodes(level, &children, members.is_empty())?;
            if let [(root, _)] = children[..] {
                let data = self.append(&names)?;
                let mut heap = b"HEAP\0\0\0\0".to_vec();
                // No free block.
                for value in [names.len() as u64, 1, data] {
                    heap.extend(value.to_le_bytes());
                }
                return Ok((root, self.append(&heap)?));
            }
            level += 1;
        }
    }

    /// Writes the nodes of a level over `children`: their addresses, and the places of their last names.
    fn nodes(
        &mut self,
        level: u8,
        children: &[(u64, u64)],
        is_empty: bool,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        const BYTES: usize = 24 + (4 * NODE_K + 1) * 8;
        let count = children.len().div_ceil(2 * NODE_K);
        let first = self.reserve((BYTES * count) as u64);
        let address = |place: usize| first + (BYTES * place) as u64;
        let mut nodes = Vec::new();
        let mut before = 0_u64;
        for (place, children) in children.chunks(2 * NODE_K).enumerate() {
            let used = if is_empty { 0 } else { children.len() };
            let mut bytes = b"TREE\0".to_vec();
            bytes.push(level);
            bytes.extend((used as u16).to_le_bytes());
            let left = place.checked_sub(1).map_or(UNDEFINED, address);
            let right = if place + 1 < count {
                address(place + 1)
            } else {
                UNDEFINED
            };
            for value in [left, right, before] {
                bytes.extend(value.to_le_bytes());
            }
            for &(child, last) in &children[..used] {
                bytes.extend(child.to_le_bytes());
                bytes.extend(last.to_le_bytes());
                before = last;
            }
            bytes.resize(BYTES, 0);
            self.write(address(place), &bytes)?;
            nodes.push((address(place), before));
        }
        Ok(nodes)
    }
}

/// A collection of texts of variable length.
#[derive(Default)]
struct Heap {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Heap {
    fn push(&mut self, text: &[u8]) {
        self.lengths.push(text.len() as u32);
        if text.is_empty() {
            return;
        }
        // Texts count from 1.
        self.bytes.extend((self.lengths.len() as u16).to_le_bytes());
        self.bytes.extend([0; 6]);
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text);
        pad(&mut self.bytes);
    }

    /// Writes the texts, and adds a reference to each.
    fn finish(
        &mut self,
        writer: &mut Hdf5Writer,
        references: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let Self { bytes, lengths } = std::mem::take(self);
        // The rest is an object of free space.
        let size = (16 + bytes.len() + 16).max(LEAST_HEAP_BYTES);
        let mut heap = b"GCOL\x01\0\0\0".to_vec();
        heap.extend((size as u64).to_le_bytes());
        heap.extend(&bytes);
        let free = (size - heap.len()) as u64;
        heap.extend([0; 8]);
        heap.extend(free.to_le_bytes());
        heap.resize(size, 0);
        let address = if bytes.is_empty() {
            0
        } else {
            writer.append(&heap)?
        };
        for (text, &length) in (1_u32..).zip(&lengths) {
            let (address, text) = if length == 0 { (0, 0) } else { (address, text) };
            references.extend(length.to_le_bytes());
            references.extend(address.to_le_bytes());
            references.extend(text.to_le_bytes());
        }
        Ok(())
    }
}

/// The dataspace message of a shape; none is a single value.
fn dataspace(shape: &[u64]) -> Vec<u8> {
    let mut message = vec![1, shape.len() as u8, 0, 0, 0, 0, 0, 0];
    for size in shape {
        message.extend(size.to_le_bytes());
    }
    message
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}
