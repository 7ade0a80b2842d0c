"""Vectors in a Parquet file that validate-embeddings takes as a reference, written without any library.

One row group, one plain page a column, no compression: `id` and `list<float>` columns. The metadata are Thrift's compact
protocol, of which this needs integers, strings, lists and structs.
"""

import struct

import numpy as np

BYTE_ARRAY, FLOAT = 6, 4
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
PLAIN, RLE = 0, 3
UTF8, LIST = 0, 3
I32, I64, STRING, LIST_OF, STRUCT = 5, 6, 8, 9, 12


def varint(value):
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def zigzag(value):
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value):
    value = value.encode()
    return varint(len(value)) + value


def items(kind, values):
    size = len(values)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)
    return head + b"".join(values)


def record(*fields):
    """A struct of (number, kind, bytes), in the order of numbers; those that are None are left out."""
    found, last = b"", 0
    for number, kind, value in fields:
        if value is not None:
            found += bytes([(number - last) << 4 | kind]) + value
            last = number
    return found + b"\0"


def element(name, kind=None, repetition=None, children=None, converted=None):
    number = lambda value: None if value is None else zigzag(value)
    return record(
        (1, I32, number(kind)),
        (3, I32, number(repetition)),
        (4, STRING, text(name)),
        (5, I32, number(children)),
        (6, I32, number(converted)),
    )


def bit_packed(levels):
    """Levels of 0 and 1 in the hybrid encoding, after their length."""
    packed = np.packbits(levels, bitorder="little").tobytes()
    runs = varint(len(packed) << 1 | 1) + packed
    return struct.pack("<I", len(runs)) + runs


def page(count, data):
    header = record((1, I32, zigzag(0)), (2, I32, zigzag(len(data))), (3, I32, zigzag(len(data))), (5, STRUCT, record(
        (1, I32, zigzag(count)), (2, I32, zigzag(PLAIN)), (3, I32, zigzag(RLE)), (4, I32, zigzag(RLE)),
    )))  # fmt: skip
    return header + data


def write(path, columns):
    """Writes column -> id -> vector, a sequence of floats each, with the same ids in all."""
    names = list(next(iter(columns.values())))
    ids = b"".join(struct.pack("<I", len(name.encode())) + name.encode() for name in names)
    pages = [(BYTE_ARRAY, ["id"], len(names), page(len(names), ids))]
    for column, vectors in columns.items():
        rows = [np.asarray(vectors[name], "<f4").ravel() for name in names]
        values = sum(row.size for row in rows)
        repeated = np.ones(values, np.uint8)
        repeated[np.cumsum([0, *(row.size for row in rows[:-1])])] = 0
        data = bit_packed(repeated) + bit_packed(np.ones(values, np.uint8)) + np.concatenate(rows).tobytes()
        pages.append((FLOAT, [column, "list", "element"], values, page(values, data)))
    body, chunks = b"PAR1", []
    for kind, parts, count, data in pages:
        size = zigzag(len(data))
        metadata = record(
            (1, I32, zigzag(kind)),
            (2, LIST_OF, items(I32, [zigzag(PLAIN), zigzag(RLE)])),
            (3, LIST_OF, items(STRING, [text(part) for part in parts])),
            (4, I32, zigzag(0)),
            (5, I64, zigzag(count)),
            (6, I64, size),
            (7, I64, size),
            (9, I64, zigzag(len(body))),
        )
        chunks.append(record((2, I64, zigzag(len(body))), (3, STRUCT, metadata)))
        body += data
    schema = [element("schema", children=len(pages)), element("id", BYTE_ARRAY, REQUIRED, converted=UTF8)]
    for column in columns:
        schema += [
            element(column, repetition=REQUIRED, children=1, converted=LIST),
            element("list", repetition=REPEATED, children=1),
            element("element", FLOAT, REQUIRED),
        ]
    count, total = zigzag(len(names)), zigzag(len(body) - 4)
    group = record((1, LIST_OF, items(STRUCT, chunks)), (2, I64, total), (3, I64, count))
    footer = record(
        (1, I32, zigzag(1)),
        (2, LIST_OF, items(STRUCT, schema)),
        (3, I64, count),
        (4, LIST_OF, items(STRUCT, [group])),
    )
    path.write_bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")
