"""Which proteins a half type is compared on: CPUs without instructions for it take a hundred times longer."""

from pathlib import Path

# Floating-point operations of matrix products, for one implementation: some ten seconds in each case.
FAST, SLOW = 4e11, 1e10


def is_fast(dtype):
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        flags = []
    # With AVX-512, libtorch widens f16 to f32 in blocks; where it has no way of its own, one value after the other.
    fast = {"bf16": {"avx512_bf16", "amx_bf16"}, "f16": {"avx512f"}, "fp8": {"avx512f"}}[dtype]
    return bool(fast & set(flags))


def kernels(asked, dtype):
    """Those of plmkit compute neither f16 nor fp8."""
    return "libtorch" if dtype in ("f16", "fp8") and asked == "auto" else asked


def choose(proteins, configuration, dtype):
    """All in f32 and int8; in a half type, evenly spaced ones as far as the budget goes, and at least the shortest."""
    if dtype in ("f32", "int8"):
        return proteins
    for step in range(1, len(proteins) + 1):
        chosen = proteins[::step]
        if sum(configuration.flops(len(protein)) for protein in chosen) <= (FAST if is_fast(dtype) else SLOW):
            return chosen
    return proteins[:1]
