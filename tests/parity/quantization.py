"""torch's own int8."""

import torch


def dynamic_int8(model):
    """The same with its linear maps as torch's dynamic quantisation has them: weights and inputs in int8."""
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
