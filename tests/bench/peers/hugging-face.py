"""transformers' EsmModel with its fastest attention (`sdpa`), in f32, in bf16 or with dynamic int8."""

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
        model = transformers.EsmModel.from_pretrained(
            job["model"], attn_implementation="sdpa", dtype=torch.float32, add_pooling_layer=False
        ).eval()
        if job["dtype"] == "bf16":
            inv_freq = model.rotary_embeddings.inv_freq.clone()
            model = model.to(torch.bfloat16)
            model.rotary_embeddings.inv_freq = inv_freq
        elif job["dtype"] == "int8":
            model = quantized.dynamic(model)
        self.model = model

    @torch.inference_mode()
    def embed(self, batch):
        return batch.mean(self.model(batch.ids, attention_mask=batch.mask).last_hidden_state)


serve(HuggingFace, ["transformers", "torch"])
