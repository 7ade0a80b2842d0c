"""The machine, and what its device can do: measured with torch, beside which all else is judged."""

import platform
import re
import subprocess
import time
from pathlib import Path

import torch
import transformers

REPEATS = 20
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def describe(device):
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "cpu": cpu()}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "devices": torch.cuda.device_count(),
            "driver": driver(),
            "cuda": torch.version.cuda,
        }
    return found


def cpu():
    try:
        return re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))[1]
    except (OSError, TypeError):
        return platform.machine()


def driver():
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return None


class Rates:
    """What a device can do. The sizes on a CPU are so small that they show only that this works."""

    def __init__(self, device):
        self.device = device
        # Rows, columns and depth of the matrix product that the peak rate is of; bytes that are copied.
        self.peak, self.copied = (8192, 1 << 30) if device == "cuda" else (512, 1 << 20)

    def seconds(self, work, repeats=REPEATS):
        """The median time of `work`, by the device's own clock if it has one."""
        for _ in range(3):
            work()
        return sorted(self.once(work) for _ in range(repeats))[repeats // 2]

    def once(self, work):
        if self.device != "cuda":
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def gemm(self, dtype):
        """FLOP/s of a large product of random matrices."""
        size = (self.peak, self.peak)
        a, b = (torch.randn(size, device=self.device, dtype=TORCH[dtype]) for _ in range(2))
        return 2 * self.peak**3 / self.seconds(lambda: a @ b)

    def copies(self):
        """Bytes/s of copies: within the memory of the device, read and written ones counted, to it, and from it."""
        here = torch.empty(self.copied, dtype=torch.uint8, pin_memory=self.device == "cuda")
        there, other = (torch.empty(self.copied, dtype=torch.uint8, device=self.device) for _ in range(2))
        return {
            "within": 2 * self.copied / self.seconds(lambda: other.copy_(there)),
            "to it": self.copied / self.seconds(lambda: there.copy_(here, non_blocking=True)),
            "from it": self.copied / self.seconds(lambda: here.copy_(there, non_blocking=True)),
        }

    def floor(self, config, dtype, tokens):
        """Tokens/s if a model were its four matrix products a layer and nothing else."""
        width, inner = config["hidden_size"], config["intermediate_size"]
        sizes = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
        kinds = {"device": self.device, "dtype": TORCH[dtype]}
        layers = [(torch.randn(tokens, rows, **kinds), torch.randn(columns, rows, **kinds)) for rows, columns in sizes]

        def products():
            for rows, weight in layers:
                torch.nn.functional.linear(rows, weight)

        return tokens / (self.seconds(products) * config["num_hidden_layers"])

    def forget(self):
        """Gives memory back, which the programs need."""
        if self.device == "cuda":
            torch.cuda.empty_cache()


def flops_per_token(config, length):
    """Of the matrix products of a model, those of attention over `length` tokens included."""
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return layers * (2 * width * (4 * width + 2 * inner) + 4 * length * width)
