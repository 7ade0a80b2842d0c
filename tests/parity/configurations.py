"""The published ESM models, in full width and, but for small ones, cut to a few layers: it is shapes that an implementation can
get wrong."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    name: str
    width: int
    heads: int
    published_layers: int
    layers: int  # of the model that is compared
    proteins: int  # how many are compared
    longest: int  # and how long they may be, in residues
    family: str = "esm2"  # of families.py
    inner: int = 0  # of the feed-forward network, if it is not four times the width
    short: str = ""
    int8_cosine: float = 0.9995  # that pooled vectors must reach
    int8_logits: bool = True  # whether they are close enough for gpu-embed; those in fp8 never are
    fp8: bool = True  # whether pooled vectors are

    @property
    def short_name(self):
        return self.short or self.name.split("_")[2]

    @property
    def intermediate(self):
        return self.inner or 4 * self.width

    def flops(self, residues):
        """Of the matrix products of one protein."""
        tokens, matrices = residues + 2, 3 if self.inner else 2
        dense = 4 * self.width**2 + matrices * self.width * self.intermediate
        return self.layers * (2 * tokens * dense + 4 * tokens**2 * self.width)


CONFIGURATIONS = [
    # Its random weights lose 0.102 to 0.104 of a log-probability in int8, with any kernels; gpu-embed accepts 0.1.
    Configuration("esm2_t6_8M_UR50D", 320, 20, published_layers=6, layers=6, proteins=64, longest=1023, int8_logits=False),
    Configuration("esm2_t12_35M_UR50D", 480, 20, published_layers=12, layers=4, proteins=48, longest=1023),
    Configuration("esm2_t30_150M_UR50D", 640, 20, published_layers=30, layers=4, proteins=48, longest=1023),
    Configuration("esm2_t33_650M_UR50D", 1280, 20, published_layers=33, layers=3, proteins=24, longest=1023),
    Configuration("esm2_t36_3B_UR50D", 2560, 40, published_layers=36, layers=2, proteins=10, longest=1023),
    Configuration("esm2_t48_15B_UR50D", 5120, 40, published_layers=48, layers=2, proteins=6, longest=300),
    Configuration("esm1b_t33_650M_UR50S", 1280, 20, 33, layers=4, proteins=8, longest=1022, family="esm1b", short="1b"),
    # 0.99937 with AVX2, 0.99955 with AVX512-VNNI; torch's dynamic int8 0.9976.
    Configuration(
        "esm1v_t33_650M_UR90S_1", 1280, 20, 33, layers=4, proteins=8, longest=1022, family="esm1v", short="1v", int8_cosine=0.999
    ),
    # Whole. Through 30 layers, 8 bits lose more: 0.99907 with AVX-512, 0.99915 with AVX512-VNNI; torch's 0.9885.
    Configuration(
        "ESMC-300M", 960, 15, 30, layers=30, proteins=6, longest=400, family="esmc", inner=2560, short="C300M", int8_cosine=0.999, fp8=False
    ),
    Configuration("ESMC-600M", 1152, 18, 36, layers=4, proteins=10, longest=1023, family="esmc", inner=3072, short="C600M"),
    Configuration("ESMC-6B", 2560, 40, 80, layers=4, proteins=4, longest=200, family="esmc", inner=6912, short="C6B"),
]
