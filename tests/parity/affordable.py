"""Which proteins a half type is compared on: CPUs without instructions for it take a hundred times longer."""

from pathlib import Path

# Of matrix products, for one implementation; seconds to half a minute.
FAST, WIDENED, SLOW = 3e12, 5e11, 1e10


def budget(dtype):
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        flags = []
    own = {"bf16": {"avx512_bf16", "amx_bf16"}, "f16": {"avx512_fp16", "amx_fp16"}}[dtype]
    if own & set(flags):
        return FAST
    # libtorch widens f16 to f32 in blocks where it has AVX-512, and one value after the other where it has not.
    return WIDENED if dtype == "f16" and "avx512f" in flags else SLOW


def choose(proteins, configuration, dtype):
    """All in f32; in a half type, evenly spaced ones as far as the budget goes, and at least the shortest."""
    if dtype == "f32":
        return proteins
    for step in range(1, len(proteins) + 1):
        chosen = proteins[::step]
        if sum(configuration.flops(len(protein)) for protein in chosen) <= budget(dtype):
            return chosen
    return proteins[:1]
