"""The rules for which families of metrics a process shows, and which values their labels may have."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Stability = Literal["ALPHA", "BETA", "STABLE"]
Allowed = Mapping[str, frozenset[str]]

UNEXPECTED = "unexpected"
# A deprecated family is still shown for so many minor versions.
_GRACE: Mapping[Stability, int] = {"ALPHA": 0, "BETA": 1, "STABLE": 3}


class MetricRules(msgspec.Struct, frozen=True):
    """`disabled` names are never shown; `allowed` are the values of labels, by family and label."""

    version: str = "0.0"
    disabled: frozenset[str] = frozenset()
    show_hidden: bool = False
    allowed: Mapping[str, Allowed] = {}

    def hides(self, stability: Stability, deprecated: str) -> bool:
        """Return whether a family of that stability, deprecated since that version, is hidden."""
        if self.show_hidden or not deprecated:
            return False
        (major, minor), (now_major, now_minor) = _parts(deprecated), _parts(self.version)
        return (major, minor + _GRACE[stability]) <= (now_major, now_minor)


def _parts(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
