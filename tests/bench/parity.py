"""What tests/parity has that is used here, too: `from parity import proteins`."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "parity"
sys.path.append(str(FOLDER))

import configurations
import proteins

__all__ = ["FOLDER", "configurations", "proteins"]
