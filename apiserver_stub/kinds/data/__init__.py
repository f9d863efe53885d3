"""Facts about the kinds, generated from public API descriptions by `reduce.py` and read with `load`."""

from importlib.resources import files
from typing import Any

import msgspec


def load(name: str) -> Any:
    """Return the content of a JSON file in this folder."""
    return msgspec.json.decode(files(__name__).joinpath(name).read_bytes())
