"""Facts about the kinds, reduced from public API descriptions by `reduce.py`; read with `load`."""

from importlib.resources import files
from typing import Any

import msgspec


def load(name: str) -> Any:
    """Return the content of one of the JSON files of this folder."""
    return msgspec.json.decode(files(__name__).joinpath(name).read_bytes())
