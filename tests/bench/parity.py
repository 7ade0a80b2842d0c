"""What tests/parity has that needs nothing but the standard library: `from parity import proteins`."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "parity"
sys.path.append(str(FOLDER))

import proteins

__all__ = ["FOLDER", "proteins"]
