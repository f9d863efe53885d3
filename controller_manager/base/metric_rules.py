"""Which families of metrics a process shows, and which values their labels may have; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client.samples import Sample

Stability = Literal["ALPHA", "BETA", "STABLE"]
Allowed = Mapping[str, frozenset[str]]

UNEXPECTED = "unexpected"
# A deprecated family is still shown for so many minor versions.
_GRACE: Mapping[Stability, int] = {"ALPHA": 0, "BETA": 1, "STABLE": 3}
# Labels that make a histogram or summary of several series; they are no matter of cardinality.
_STRUCTURE = frozenset({"le", "quantile"})


@dataclass(frozen=True, slots=True)
class Rules:
    """`disabled` names are never shown; `allowed` are the values of labels, by family and label."""

    version: str = "0.0"
    disabled: frozenset[str] = frozenset()
    show_hidden: bool = False
    allowed: Mapping[str, Allowed] = field(default_factory=dict)

    def hides(self, stability: Stability, deprecated: str) -> bool:
        """Whether a family of that stability, deprecated since that version, is hidden."""
        if self.show_hidden or not deprecated:
            return False
        (major, minor), (now_major, now_minor) = _parts(deprecated), _parts(self.version)
        return (major, minor + _GRACE[stability]) <= (now_major, now_minor)


def constrained(samples: Iterable[Sample], allowed: Allowed) -> tuple[list[Sample], int]:
    """The samples with label values that are not allowed replaced, and how many were.

    Series that become the same are one, and their values are added up: a gauge shows the sum of what it stands for.
    """
    merged: dict[tuple[str, tuple[str, ...]], Sample] = {}
    replaced = 0
    for sample in samples:
        labels = {name: _one_of(allowed, name, value) for name, value in sample.labels.items()}
        replaced += labels != sample.labels and not _STRUCTURE.intersection(labels)
        key = (sample.name, tuple(labels.values()))
        found = merged.get(key)
        merged[key] = Sample(sample.name, labels, sample.value + (found.value if found is not None else 0.0))
    return list(merged.values()), replaced


def _one_of(allowed: Allowed, name: str, value: str) -> str:
    if name in _STRUCTURE or name not in allowed or value in allowed[name]:
        return value
    return UNEXPECTED


def _parts(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
