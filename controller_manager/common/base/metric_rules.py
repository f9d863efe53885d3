"""Rules for the metric families that a process shows, and for the values of their labels."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Stability = Literal["ALPHA", "BETA", "STABLE"]
Allowed = Mapping[str, frozenset[str]]

UNEXPECTED = "unexpected"
# Number of minor versions for which a deprecated family is still shown.
_GRACE: Mapping[Stability, int] = {"ALPHA": 0, "BETA": 1, "STABLE": 3}


class MetricRules(msgspec.Struct, frozen=True):
    """`disabled` families are never shown; `allowed` holds the allowed label values by family and label."""

    version: str = "0.0"
    disabled: frozenset[str] = frozenset()
    show_hidden: bool = False
    allowed: Mapping[str, Allowed] = {}

    def hides(self, stability: Stability, deprecated: str) -> bool:
        """Return whether a family with this stability, deprecated since that version, is hidden."""
        if self.show_hidden or not deprecated:
            return False
        (major, minor), (now_major, now_minor) = _parts(deprecated), _parts(self.version)
        return (major, minor + _GRACE[stability]) <= (now_major, now_minor)


def _parts(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
