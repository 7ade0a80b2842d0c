"""Which program needs which shared library."""

import re
import subprocess

import pytest
from conftest import PROGRAMS

C_LIBRARY = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def needed(program):
    text = subprocess.run(["readelf", "-d", PROGRAMS / program], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))


@pytest.mark.parametrize("program", ["fasta-shard", "pack-batches", "gpu-embed", "validate-embeddings", "query-embeddings", "monitor-log"])
def test_programs_need_only_the_c_library(program):
    assert needed(program) <= C_LIBRARY


@pytest.mark.skipif(not (PROGRAMS / "libplmkit_cuda.so").exists(), reason="built with GPU=1 alone")
def test_the_library_needs_libtorch_but_not_its_gpu_half():
    """libtorch_cuda would need a driver; libtorch would pull it in."""
    torch = {name for name in needed("libplmkit_cuda.so") if "torch" in name or "cuda" in name or "c10" in name}
    assert torch == {"libtorch_cpu.so", "libc10.so"}
