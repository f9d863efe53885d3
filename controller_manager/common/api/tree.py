"""JSON objects as plain Python values."""

from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]
"""A decoded JSON object."""
FrozenTree = Mapping[str, Any]
"""A decoded JSON object that the holder must not change."""
