"""Which program needs which shared library."""

import re
import subprocess

import pytest
from conftest import PROGRAMS


def needed(program):
    text = subprocess.run(["readelf", "-d", PROGRAMS / program], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))


@pytest.mark.parametrize("program", ["fasta-shard", "pack-batches", "validate-embeddings", "monitor-log"])
def test_four_programs_need_only_the_c_library(program):
    assert needed(program) <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


def test_gpu_embed_needs_libtorch_but_not_its_gpu_half():
    """libtorch_cuda would need a driver; libtorch would pull it in."""
    torch = {name for name in needed("gpu-embed") if "torch" in name or "cuda" in name or "c10" in name}
    assert torch == {"libtorch_cpu.so", "libc10.so"}
