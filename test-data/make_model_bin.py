"""Makes model-tiny-bin: model-tiny in half precision as `torch.save` writes it, in two files with an index.

Everything is in it that a state dictionary of PyTorch may have and a safetensors file may not: the decoder of the
language model is the word embedding, the projections of an attention are parts of one storage, a matrix is stored
transposed, there are integers, and `_metadata` as `torch.nn.Module.state_dict` leaves it. And smallest.bin, the parameters of
an ESM-2 of one layer and two channels.
"""

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file

SOURCE = Path(__file__).with_name("model-tiny")
TARGET = Path(__file__).with_name("model-tiny-bin")
FILES = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]

tensors = {name: tensor.half() for name, tensor in sorted(load_file(SOURCE / "model.safetensors").items())}
for name in [name for name in tensors if name.endswith(".query.weight")]:
    names = [name.replace("query", part) for part in ("query", "key", "value")]
    fused = torch.cat([tensors[name] for name in names])
    tensors.update(zip(names, fused.chunk(3)))
for name in [name for name in tensors if name.endswith(".intermediate.dense.weight")]:
    tensors[name] = tensors[name].t().contiguous().t()
tensors["lm_head.decoder.weight"] = tensors["esm.embeddings.word_embeddings.weight"]
tensors["esm.embeddings.position_ids"] = torch.arange(26).unsqueeze(0)

parts = [OrderedDict(), OrderedDict()]
for name, tensor in tensors.items():
    parts["layer.2" in name or "layer.3" in name][name] = tensor
weight_map = {name: file for file, part in zip(FILES, parts) for name in part}

TARGET.mkdir(exist_ok=True)
shutil.copy(SOURCE / "config.json", TARGET)
for file, part in zip(FILES, parts):
    part._metadata = OrderedDict({"": {"version": 1}, "esm": {"version": 1}})
    torch.save(part, TARGET / file)
index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())}, "weight_map": weight_map}
(TARGET / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")

SIZES = {
    "embeddings.word_embeddings.weight": (33, 2),
    "encoder.layer.0.attention.LayerNorm.weight": (2,),
    "encoder.layer.0.attention.LayerNorm.bias": (2,),
    "encoder.layer.0.attention.self.query.weight": (2, 2),
    "encoder.layer.0.attention.self.query.bias": (2,),
    "encoder.layer.0.attention.self.key.weight": (2, 2),
    "encoder.layer.0.attention.self.key.bias": (2,),
    "encoder.layer.0.attention.self.value.weight": (2, 2),
    "encoder.layer.0.attention.self.value.bias": (2,),
    "encoder.layer.0.attention.output.dense.weight": (2, 2),
    "encoder.layer.0.attention.output.dense.bias": (2,),
    "encoder.layer.0.LayerNorm.weight": (2,),
    "encoder.layer.0.LayerNorm.bias": (2,),
    "encoder.layer.0.intermediate.dense.weight": (1, 2),
    "encoder.layer.0.intermediate.dense.bias": (1,),
    "encoder.layer.0.output.dense.weight": (2, 1),
    "encoder.layer.0.output.dense.bias": (2,),
    "encoder.layer.0.attention.self.rotary_embeddings.inv_freq": (1,),
    "encoder.emb_layer_norm_after.weight": (2,),
    "encoder.emb_layer_norm_after.bias": (2,),
}
smallest = OrderedDict((name, torch.nn.Parameter(torch.ones(shape))) for name, shape in SIZES.items())
torch.save(smallest, TARGET.with_name("smallest.bin"))
