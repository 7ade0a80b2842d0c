"""The four matrix products of each layer and nothing else: the most tokens/s that torch's GEMM would allow.

Each is as fast as it can be here: query, key and value in one, gate and up in one, as many rows as suit it, and the
weights of one layer used again and again.
"""

import time

import torch
import transformers

import quantized
from serve import serve

ROWS = (512, 1024, 2048, 4096)
SECONDS = 2.0


class Floor:
    def __init__(self, job):
        torch.set_num_threads(job["threads"])
        config = transformers.AutoConfig.from_pretrained(job["model"])
        width, inner, self.layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
        up = 2 * inner if config.model_type == "esmc" else inner  # with the gate
        self.sizes = [(width, 3 * width), (width, width), (width, up), (inner, width)]
        self.products = torch.nn.ModuleList(torch.nn.Linear(*size, bias=False) for size in self.sizes)
        self.dtype = torch.bfloat16 if job["dtype"] == "bf16" else torch.float32
        self.products.to(self.dtype)
        if job["dtype"] == "int8":
            self.products = quantized.dynamic(self.products)

    def prepare(self):
        """Chooses the rows, and how often a repeat goes through a layer."""
        self.rows = min(ROWS, key=lambda rows: self.seconds(rows) / rows)
        self.count = max(1, round(SECONDS / self.seconds(self.rows)))
        return {"batch_tokens": self.rows, "vectors": {}}

    def seconds(self, rows):
        """Of one layer, warm."""
        self.inputs = [torch.randn(rows, size).to(self.dtype) for size, _ in self.sizes]
        self.layer()
        start = time.perf_counter()
        self.layer()
        return time.perf_counter() - start

    @torch.inference_mode()
    def layer(self):
        for product, rows in zip(self.products, self.inputs, strict=True):
            product(rows)

    def run(self):
        """How many tokens would have gone through all layers."""
        for _ in range(self.count):
            self.layer()
        return self.rows * self.count / self.layers


serve(Floor, ["torch"])
