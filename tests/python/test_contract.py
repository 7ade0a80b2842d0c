"""The promises of the file contract, checked by an implementation of its own."""

import json
import struct

import blake3
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import xxhash
from conftest import PROTEINS

# Token ids are positions in the vocabulary of fair-esm.
VOCABULARY = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO"]
WINDOW, OVERLAP, BUDGET = 1022, 256, 4096


def read_fasta():
    records = []
    for line in PROTEINS.read_text(encoding="utf-8").splitlines():
        if line.startswith(">"):
            name, _, description = line[1:].partition(" ")
            records.append([name, description.strip(), ""])
        else:
            records[-1][2] += line
    return records


def windows(length):
    starts = [0]
    while starts[-1] + WINDOW < length:
        starts.append(starts[-1] + WINDOW - OVERLAP)
    return starts


def read_shards(chain):
    """(ordinal, start) -> row"""
    table = pa.concat_tables(pq.read_table(path) for path in chain.shards)
    return {(row["ordinal"], row["start"]): row for row in table.to_pylist()}


def test_shards_hold_every_residue_of_the_fasta(chain):
    shards = read_shards(chain)
    expected = {}
    for ordinal, (name, description, sequence) in enumerate(read_fasta()):
        for start in windows(len(sequence)):
            residues = sequence[start : start + WINDOW]
            expected[ordinal, start] = {
                "ordinal": ordinal,
                "id": name,
                "description": description,
                "sequence": residues,
                "length": len(sequence),
                "start": start,
                "truncated": False,
                "sequence_digest": blake3.blake3(residues.encode()).hexdigest(16),
            }
    assert shards == expected
    assert chain.rejects.read_text(encoding="utf-8") == "ordinal,id,length,reason\n"


def test_the_manifest_vouches_for_itself_and_for_the_rejects(chain):
    manifest = chain.rejects.with_name("manifest.json").read_text(encoding="utf-8")
    entries, separator, seal = manifest.rpartition(',\n  "seal": "')
    assert separator and seal == f'xxh3-128:{xxhash.xxh3_128_hexdigest(entries.encode())}"\n}}\n'
    expected = "xxh3-128:" + xxhash.xxh3_128_hexdigest(chain.rejects.read_bytes())
    assert json.loads(manifest)["rejects_digest"] == expected


def test_offsets_of_a_record_batch_are_cu_seqlens(chain):
    """Reads the raw buffers, as a kernel for attention without padding would."""
    shards = read_shards(chain)
    seen = []
    for path in chain.batches:
        with pa.memory_map(str(path)) as source, ipc.open_file(source) as file:
            for index in range(file.num_record_batches):
                batch = file.get_batch(index)
                tokens = batch.column("tokens")
                assert tokens.offset == 0
                _validity, offsets, _item_validity, values = tokens.buffers()
                cu_seqlens = np.frombuffer(offsets, np.int32, len(tokens) + 1)
                input_ids = np.frombuffer(values, np.uint8, cu_seqlens[-1])
                assert cu_seqlens[0] == 0
                assert len(tokens.values) == len(input_ids) <= BUDGET
                for row in range(batch.num_rows):
                    first, *residues, last = input_ids[cu_seqlens[row] : cu_seqlens[row + 1]]
                    key = batch.column("ordinal")[row].as_py(), batch.column("start")[row].as_py()
                    assert (first, last) == (0, 2)
                    assert "".join(VOCABULARY[token] for token in residues) == shards[key]["sequence"]
                    seen.append(key)
    assert sorted(seen) == sorted(shards)


def value_bytes(value, kind):
    """The bytes of one value as the row digest hashes them: its length and then itself."""
    if value is None:
        return struct.pack("<Q", 2**64 - 1)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        data = np.array(value, kind.value_type.to_pandas_dtype()).tobytes()
    elif pa.types.is_string(kind):
        data = value.encode()
    else:
        data = struct.pack({pa.int64(): "<q", pa.uint32(): "<I", pa.bool_(): "<?"}[kind], value)
    return struct.pack("<Q", len(data)) + data


def row_digest(table):
    """The order-independent digest, as lib/contract/src/digest.rs defines it."""
    total = 0
    lists = [column.to_pylist() for column in table.columns]
    for row in zip(*lists, strict=True):
        data = b"".join(value_bytes(v, field.type) for v, field in zip(row, table.schema, strict=True))
        total += xxhash.xxh3_128_intdigest(data)
    return f"xxh3-128-sum:{total % 2**128:032x}:{table.num_rows}"


def test_row_digests(chain):
    for path in [*chain.shards, chain.embeddings]:
        assert pq.read_metadata(path).metadata[b"plmkit.rows"].decode() == row_digest(pq.read_table(path))
    for path in chain.batches:
        with ipc.open_file(path) as file:
            assert file.metadata[b"plmkit.rows"].decode() == row_digest(file.read_all())


def checksums(data, magic):
    """Holds a file to the checksums before its footer, and returns how many there are."""
    assert data.endswith(magic)
    end = len(data) - len(magic)
    (footer,) = struct.unpack("<I", data[end - 4 : end])
    rest = data[end - 4 - footer :]
    block, mark = data[: -len(rest) - 8], data[-len(rest) - 8 : -len(rest)]
    assert mark == b"plmkit-x"
    block, digest = block[:-16], block[-16:]
    (count,) = struct.unpack("<Q", block[-8:])
    table = block[-8 - 20 * count :]
    assert xxhash.xxh3_128_intdigest(table + rest) == int.from_bytes(digest, "little")
    place = 0
    for entry in range(count):
        length, *halves = struct.unpack_from("<IQQ", table, 20 * entry)
        expected = halves[1] << 64 | halves[0]
        assert xxhash.xxh3_128_intdigest(data[place : place + length]) == expected
        place += length
    assert place == len(block) - len(table), "no byte is without a checksum"
    return count


def test_every_byte_has_a_checksum(chain):
    for path in [*chain.shards, chain.embeddings]:
        assert checksums(path.read_bytes(), b"PAR1") >= 1
    for path in chain.batches:
        with ipc.open_file(path) as file:
            batches = file.num_record_batches
        assert checksums(path.read_bytes(), b"ARROW1") >= batches, "a batch is read without its neighbours"
