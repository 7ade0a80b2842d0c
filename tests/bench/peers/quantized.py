"""Dynamic int8 as torch has it, with whichever of its engines is faster on this CPU."""

import os
import time
import warnings

import torch
from quantization import dynamic_int8

ENGINES = os.environ.get("QUANTIZED_ENGINES", "x86,onednn").split(",")
ROWS, WIDTH, REPEATS = 1024, 640, 10


def dynamic(model):
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.backends.quantized.engine = min(ENGINES, key=seconds)
    return dynamic_int8(model)


@torch.inference_mode()
def seconds(engine):
    """The least that a linear map took."""
    torch.backends.quantized.engine = engine
    linear, rows = dynamic_int8(torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH))), torch.randn(ROWS, WIDTH)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        linear(rows)
        taken.append(time.perf_counter() - start)
    return min(taken)
