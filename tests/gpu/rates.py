"""What the device can do, measured with torch: beside that all else is judged."""

import time

import torch

# In fp8, what is not multiplied in 8 bits is bf16.
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


def product(dtype, x, weight, bias=None):
    """A function that multiplies rows by a weight, (out, in), as gpu-embed asks for it."""
    if dtype != "fp8":
        return lambda: torch.nn.functional.linear(x, weight, bias)
    (values, scales), (weights, by) = (quantised(of) for of in (x, weight))
    return lambda: torch._scaled_mm(values, weights.t(), scales, by.t(), bias, out_dtype=torch.bfloat16)


def quantised(x):
    """Rows in e4m3, and their scales."""
    scales = x.float().abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    return (x / scales).to(torch.float8_e4m3fn), scales


class Rates:
    def __init__(self, device, quick):
        self.device = device
        # Rows, columns and depth of the matrix product that the peak rate is of.
        self.peak, self.repeats = (512, 3) if quick else (8192, 15)

    def seconds(self, work):
        """The median time of `work`, by the device's own clock if it has one."""
        for _ in range(3):
            work()
        return sorted(self.once(work) for _ in range(self.repeats))[self.repeats // 2]

    def once(self, work):
        if self.device != "cuda":
            start = time.perf_counter()
            work()
            return max(1e-9, time.perf_counter() - start)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return max(1e-9, start.elapsed_time(end) / 1e3)

    def gemm(self, dtype):
        """FLOP/s of a large product of random matrices."""
        a, b = (torch.randn(self.peak, self.peak, device=self.device, dtype=TORCH[dtype]) for _ in range(2))
        return 2 * self.peak**3 / self.seconds(product(dtype, a, b))

    def copy(self, traffic):
        """Bytes/s of a copy within the device's memory, `traffic` bytes read and written in all."""
        there, other = (torch.empty(int(traffic) // 2, dtype=torch.uint8, device=self.device) for _ in range(2))
        return 2 * len(there) / self.seconds(lambda: other.copy_(there))

    def transfers(self, size):
        """Bytes/s to the device and from it, from page-locked memory."""
        here = torch.empty(size, dtype=torch.uint8, pin_memory=self.device == "cuda")
        there = torch.empty(size, dtype=torch.uint8, device=self.device)
        to_it = self.seconds(lambda: there.copy_(here, non_blocking=True))
        return size / to_it, size / self.seconds(lambda: here.copy_(there, non_blocking=True))

    def floor(self, config, dtype, tokens):
        """Tokens/s if a model were the matrix products of its layers and nothing else, each as gpu-embed asks for it."""
        width, inner = config["hidden_size"], config["intermediate_size"]
        kinds = {"device": self.device, "dtype": TORCH[dtype]}

        def layer(inputs, outputs):
            weight = torch.randn(outputs, inputs, **kinds) / inputs**0.5
            return torch.randn(tokens, inputs, **kinds), weight, torch.randn(outputs, **kinds)

        gated = config["hidden_act"] == "silu"
        # With bias: addmm, which is cublasLt's. Before GELU, whose kernel adds the bias, without. ESMC has no biases.
        after_attention, *others = [layer(width, width), layer(width, 3 * width), layer(inner, width)]
        rows, up, _ = layer(width, 2 * inner if gated else inner)
        with torch.inference_mode():
            # That after attention stays in bf16.
            products = [product("bf16" if dtype == "fp8" else dtype, *after_attention[:2], None if gated else after_attention[2])]
            products += [product(dtype, x, weight, None if gated else bias) for x, weight, bias in others] + [product(dtype, rows, up)]
            taken = self.seconds(lambda: [one() for one in products])
        return tokens / (taken * config["num_hidden_layers"])
