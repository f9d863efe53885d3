"""The public surface changes only on purpose; `python tests/house/surface.py` writes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import surface


def test_public_surface_is_unchanged() -> None:
    assert surface.surface() == surface.WRITTEN.read_text()
