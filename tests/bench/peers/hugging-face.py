"""transformers' EsmModel or EsmcModel with its fastest attention (`sdpa`), in f32, in bf16 or with dynamic int8."""

import torch
import transformers

import padded
import quantized
from serve import Batched, serve


class HuggingFace(Batched):
    build = padded.Batch

    def __init__(self, job):
        super().__init__(job)
        torch.set_num_threads(job["threads"])
        kind, options = transformers.EsmModel, {"add_pooling_layer": False}
        if transformers.AutoConfig.from_pretrained(job["model"]).model_type == "esmc":
            kind, options = transformers.EsmcModel, {}
        model = kind.from_pretrained(job["model"], attn_implementation="sdpa", dtype=torch.float32, **options).eval()
        if job["dtype"] == "bf16":
            rotary = model.rotary_emb if kind is transformers.EsmcModel else model.rotary_embeddings
            inv_freq = rotary.inv_freq.clone()
            model = model.to(torch.bfloat16)
            rotary.inv_freq = inv_freq
        elif job["dtype"] == "int8":
            model = quantized.dynamic(model)
        self.model = model

    @torch.inference_mode()
    def embed(self, batch):
        return batch.mean(self.model(batch.ids, attention_mask=batch.mask).last_hidden_state)


serve(HuggingFace, ["transformers", "torch"])
