"""The six published ESM-2, in full width and cut to a few layers: it is shapes that an implementation can get wrong."""

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

    @property
    def short_name(self):
        return self.name.split("_")[2]

    def flops(self, residues):
        """Of the matrix products of one protein."""
        tokens = residues + 2
        return self.layers * (24 * tokens * self.width**2 + 4 * tokens**2 * self.width)


CONFIGURATIONS = [
    Configuration("esm2_t6_8M_UR50D", 320, 20, published_layers=6, layers=6, proteins=64, longest=1023),
    Configuration("esm2_t12_35M_UR50D", 480, 20, published_layers=12, layers=4, proteins=48, longest=1023),
    Configuration("esm2_t30_150M_UR50D", 640, 20, published_layers=30, layers=4, proteins=48, longest=1023),
    Configuration("esm2_t33_650M_UR50D", 1280, 20, published_layers=33, layers=3, proteins=24, longest=1023),
    Configuration("esm2_t36_3B_UR50D", 2560, 40, published_layers=36, layers=2, proteins=10, longest=1023),
    Configuration("esm2_t48_15B_UR50D", 5120, 40, published_layers=48, layers=2, proteins=6, longest=300),
]
