"""The machine that it all runs on, and how fast it is at the moment."""

import hashlib
import os
import platform
import time
from pathlib import Path

import results

# Instructions that decide which kernels a program can take.
FLAGS = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8", "amx_tile"]
# What keeps torch and its libraries to the instructions of a lesser CPU, by plmkit's name of its kernels. Nothing keeps
# fbgemm to them, so that it is left out.
LIMITS = {
    kernels: {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": onednn,
        "QUANTIZED_ENGINES": "onednn",
    }
    for kernels, onednn in {"avx2": "AVX2", "avx_vnni": "AVX2_VNNI"}.items()
}
# A type that is not here runs on any CPU.
FAST = {"bf16": {"avx512_bf16", "amx_bf16"}}
CLOCK_BYTES = 64 << 20


def fields(path):
    """Name -> value of a file of `name: value` lines; of repeated names, the first."""
    pairs = (line.split(":", 1) for line in Path(path).read_text(encoding="utf-8").splitlines() if ":" in line)
    found = {}
    for name, value in pairs:
        found.setdefault(name.strip(), value.strip())
    return found


def limit(kernels):
    """Keeps this process and those that it starts to the instructions of plmkit's `kernels`."""
    if kernels != "auto":
        os.environ.update(LIMITS[kernels])
        FLAGS[:] = [flag for flag in FLAGS if flag in {"avx2", "fma", kernels}]


def flags():
    present = set(fields("/proc/cpuinfo").get("flags", "").split())
    return [flag for flag in FLAGS if flag in present]


def lacks(needed):
    """Why nothing that needs one of these instructions runs here, or none."""
    return f"this CPU has no {' or '.join(sorted(needed))}" if needed and not needed & set(flags()) else None


def describe(threads):
    cpu, memory = fields("/proc/cpuinfo"), fields("/proc/meminfo")
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "flags": flags(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "memory_gib": round(int(memory["MemTotal"].split()[0]) / 2**20, 1),
        "kernel": platform.release(),
    }


class Clock:
    """SHA-256 on one thread: what the programs without a peer are compared with. A byte counts as a token."""

    def __init__(self):
        self.data = bytes(CLOCK_BYTES)
        self.versions = {}
        self.results = [results.Result(results.CLOCK, "sha256", CLOCK_BYTES)]

    def once(self):
        start = time.perf_counter()
        hashlib.sha256(self.data).digest()
        self.results[0].seconds.append(time.perf_counter() - start)
