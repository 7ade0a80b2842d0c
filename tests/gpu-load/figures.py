"""The most that a layer of model-tiny, or a batch of four, may ask of the device, by kernels and type.

A figure grows only with a reason, which stands here; where it can shrink, the suite says so.
"""


def most(launches, gemms, launches_of_batch, gemms_of_batch):
    return {
        "launches a layer": launches,
        "GEMMs a layer": gemms,
        "launches a batch": launches_of_batch,
        "GEMMs a batch": gemms_of_batch,
    }


# A layer: rotary embedding, attention, LayerNorm with the residual sum (twice), bias with GELU. Beside the layers: embedding,
# positions to integers, four for the table of rotations, the first LayerNorm and the last, pooling in two steps.
FUSED = most(5, 4, 30, 16)
# A layer in a half type: what separates it from f32 are the copies from f32 to the type before a product, and back.
NARROW, WIDE = most(11, 4, 59, 16), most(7, 4, 43, 16)

MOST = {
    "auto": {"f16": FUSED, "bf16": FUSED, "f32": FUSED, "fp8": FUSED},
    "libtorch": {"f16": NARROW, "bf16": NARROW, "f32": WIDE},
}
