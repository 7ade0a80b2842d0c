"""The machine, and what its GPU can do: measured with torch, beside which all else is judged."""

import platform
import subprocess

import torch
import transformers

PEAK = 8192  # rows, columns and depth of the matrix product that the peak rate is of
COPIED = 1 << 30
REPEATS = 20
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def describe(device):
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "cpu": platform.processor()}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        found |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "devices": torch.cuda.device_count(),
            "driver": driver[0] if driver else None,
            "cuda": torch.version.cuda,
        }
    return found


def seconds(work, repeats=REPEATS):
    """The median time of `work` on the GPU, by its own clock."""
    for _ in range(3):
        work()
    taken = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return sorted(taken)[len(taken) // 2]


def gemm_rate(dtype):
    """FLOP/s of a large product of random matrices."""
    a, b = (torch.randn(PEAK, PEAK, device="cuda", dtype=TORCH[dtype]) for _ in range(2))
    return 2 * PEAK**3 / seconds(lambda: a @ b)


def copy_rate():
    """Bytes/s of a copy within the memory of the GPU, read and written ones counted."""
    a = torch.randn(COPIED // 4, device="cuda")
    b = torch.empty_like(a)
    return 2 * COPIED / seconds(lambda: b.copy_(a))


def floor(config, dtype, tokens):
    """Tokens/s if a model were its four matrix products a layer and nothing else."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    sizes = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    kinds = {"device": "cuda", "dtype": TORCH[dtype]}
    layers = [(torch.randn(tokens, rows, **kinds), torch.randn(columns, rows, **kinds)) for rows, columns in sizes]

    def products():
        for rows, weight in layers:
            torch.nn.functional.linear(rows, weight)

    return tokens / (seconds(products) * config["num_hidden_layers"])


def flops_per_token(config, length):
    """Of the matrix products of a model, those of attention over `length` tokens included."""
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return layers * (2 * width * (4 * width + 2 * inner) + 4 * length * width)
