//! Writes PyTorch files, also ones that `torch.save` would not.

use std::collections::BTreeMap;

use safetensors::tensor::Dtype;

use super::tiny::Part;

/// A weight file of PyTorch.
pub fn torch_file(parts: &BTreeMap<String, Part>) -> Vec<u8> {
    torch_file_as(parts, archive)
}

/// A weight file of PyTorch in an archive that `archive` writes.
pub fn torch_file_as(
    parts: &BTreeMap<String, Part>,
    archive: impl Fn(&[(&str, &[u8])]) -> Vec<u8>,
) -> Vec<u8> {
    let keys: Vec<String> = (0..parts.len()).map(|key| format!("data/{key}")).collect();
    let entries = parts.iter().enumerate().map(|(key, (name, part))| {
        let class = storage_class(part.dtype);
        let (length, shape) = (part.shape.iter().product(), &part.shape);
        let tensor = tensor(&storage(class, key, length), 0, shape, &in_order(shape));
        [text(name), tensor].concat()
    });
    let pickle = pickle(&dictionary(&entries.collect::<Vec<_>>().concat()));
    let storages = keys
        .iter()
        .zip(parts.values())
        .map(|(key, part)| (key.as_str(), &part.bytes[..]));
    let records: Vec<_> = [("data.pkl", &pickle[..]), ("byteorder", b"little")]
        .into_iter()
        .chain(storages)
        .collect();
    archive(&records)
}

/// A zip archive of these records in a folder, without compression.
pub fn archive(records: &[(&str, &[u8])]) -> Vec<u8> {
    written(records, false)
}

/// The same in the form of archives beyond 4 GiB, whose sizes and offsets have 64 bits.
pub fn large_archive(records: &[(&str, &[u8])]) -> Vec<u8> {
    written(records, true)
}

fn written(records: &[(&str, &[u8])], is_large: bool) -> Vec<u8> {
    let small = |value: usize| {
        if is_large {
            [0xff; 4]
        } else {
            (value as u32).to_le_bytes()
        }
    };
    let wide = |values: [usize; 3]| values.map(|value| (value as u64).to_le_bytes()).concat();
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, record) in records {
        let name = format!("archive/{name}");
        let (size, start) = (record.len(), archive.len());
        let extra = if is_large {
            [
                &[9, 0, 2, 0, 0, 0, 1, 0, 24, 0][..],
                &wide([size, size, start]),
            ]
            .concat()
        } else {
            Vec::new()
        };
        // Version, flags, method, time, date; checksum; sizes; the length of the name.
        let header = [
            &[0; 10][..],
            &crc32fast::hash(record).to_le_bytes(),
            &small(size),
            &small(size),
            &(name.len() as u16).to_le_bytes(),
        ]
        .concat();
        let extra_length = (extra.len() as u16).to_le_bytes();
        directory.extend([b"PK\x01\x02\0\0", &header[..], &extra_length, &[0; 10]].concat());
        directory.extend([&small(start)[..], name.as_bytes(), &extra].concat());
        archive.extend([b"PK\x03\x04", &header[..], &[0; 2], name.as_bytes(), record].concat());
    }
    let (size, start) = (directory.len(), archive.len());
    archive.extend(directory);
    if is_large {
        let end = archive.len() as u64;
        let count = records.len();
        let fields = [
            &wide([44, 0, 0])[..20],
            &wide([count, count, size]),
            &wide([start, 0, 0])[..8],
        ];
        archive.extend([b"PK\x06\x06".to_vec(), fields.concat()].concat());
        archive.extend(
            [
                b"PK\x06\x07",
                &[0; 4][..],
                &end.to_le_bytes(),
                &[1, 0, 0, 0],
            ]
            .concat(),
        );
    }
    let counts = [records.len() as u16; 2].map(u16::to_le_bytes).concat();
    let place = [small(size), small(start)].concat();
    archive.extend([b"PK\x05\x06\0\0\0\0", &counts[..], &place, &[0; 2]].concat());
    archive
}

/// A pickle of a value.
pub fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// A dictionary of alternating keys and values.
pub fn dictionary(entries: &[u8]) -> Vec<u8> {
    [b"ccollections\nOrderedDict\n)R(", entries, b"u"].concat()
}

pub fn text(text: &str) -> Vec<u8> {
    [
        b"X",
        &(text.len() as u32).to_le_bytes()[..],
        text.as_bytes(),
    ]
    .concat()
}

/// The storage of `length` values in the record `data/KEY`.
pub fn storage(class: &str, key: usize, length: usize) -> Vec<u8> {
    let key = text(&key.to_string());
    let class = format!("ctorch\n{class}\n").into_bytes();
    [
        b"(".to_vec(),
        text("storage"),
        class,
        key,
        text("cpu"),
        number(length),
        b"tQ".to_vec(),
    ]
    .concat()
}

pub fn tensor(storage: &[u8], offset: usize, shape: &[usize], strides: &[usize]) -> Vec<u8> {
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n(".to_vec(),
        storage.to_vec(),
        number(offset),
        tuple(shape),
        tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR".to_vec(),
    ]
    .concat()
}

fn tuple(numbers: &[usize]) -> Vec<u8> {
    let numbers: Vec<_> = numbers.iter().map(|&value| number(value)).collect();
    [b"(".to_vec(), numbers.concat(), b"t".to_vec()].concat()
}

/// An integer of eight bytes.
fn number(value: usize) -> Vec<u8> {
    [b"\x8a\x08", &(value as u64).to_le_bytes()[..]].concat()
}

/// The strides of row-major values.
pub fn in_order(shape: &[usize]) -> Vec<usize> {
    (0..shape.len())
        .map(|i| shape[i + 1..].iter().product())
        .collect()
}

fn storage_class(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "FloatStorage",
        Dtype::F16 => "HalfStorage",
        Dtype::BF16 => "BFloat16Storage",
        Dtype::F64 => "DoubleStorage",
        other => panic!("{other}"),
    }
}
