"""torch's own int8, and fp8 written out."""

import torch

# Linear maps of a layer that are computed in fp8, by the ends of their names: all but that after attention.
IN_FP8 = ("query", "key", "value", "q_proj", "k_proj", "v_proj", "intermediate.dense", "gate_proj", "up_proj", "down_proj")
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def dynamic_int8(model):
    """The same with its linear maps as torch's dynamic quantisation has them: weights and inputs in int8."""
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


class Fp8(torch.nn.Module):
    """A linear map whose weights, with a scale for each output, and inputs, with one for each token, are e4m3. The product of the mean
    input is in the bias: all of it, of inputs that lack the mean, or what rounding takes from it."""

    def __init__(self, linear, mean, lacks_mean):
        super().__init__()
        self.weight, self.scales = rounded(linear.weight)
        product = (linear.weight if lacks_mean else linear.weight - self.weight * self.scales) @ mean
        self.bias = (product if linear.bias is None else product + linear.bias).to(torch.bfloat16)
        self.mean = mean if lacks_mean else 0.0

    def forward(self, x):
        values, scales = rounded(x - self.mean)
        return (values @ self.weight.T * scales * self.scales.T + self.bias).to(x.dtype)


def rounded(x):
    """The values of each row in e4m3, as float32, and the row's scale."""
    largest = x.float().abs().amax(-1, keepdim=True)
    scales = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (x / scales).to(torch.float8_e4m3fn).float(), scales


def quantized(layers, dtype, run):
    """Layers of a model in float32, or those for a type of 8 bits. `run` computes them for the proteins of gpu-embed."""
    if dtype == "int8":
        return dynamic_int8(layers)
    if dtype == "fp8":
        use_fp8(layers, run)
    return layers


@torch.no_grad()
def use_fp8(layers, run):
    chosen, inputs, handles = {}, {}, []
    for name, module in layers.named_modules():
        is_last = name.endswith(("output.dense", "down_proj")) and not name.endswith("attention.output.dense")
        if isinstance(module, torch.nn.Linear) and (name.endswith(IN_FP8) or is_last):
            chosen[name] = module, not is_last
            inputs[name] = []
            keep = inputs[name].append
            handles.append(module.register_forward_pre_hook(lambda _, given, keep=keep: keep(given[0].flatten(0, -2))))
    run()
    for handle in handles:
        handle.remove()
    for name, (module, lacks_mean) in chosen.items():
        parent, _, own = name.rpartition(".")
        setattr(layers.get_submodule(parent), own, Fp8(module, torch.cat(inputs.pop(name)).mean(0), lacks_mean))
