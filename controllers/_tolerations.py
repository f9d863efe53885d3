"""Tolerations of pods: how long one may stay on a node with taints; pure."""

import math
import re
from collections.abc import Callable, Iterable
from operator import itemgetter

from controller_manager.api.core import Toleration
from controller_manager.api.nodes import Node, Taint

NO_EXECUTE = "NoExecute"
FOR_GOOD = math.inf
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_LIMIT = 1 << 63


def no_execute(node: Node | None) -> tuple[Taint, ...]:
    """The taints by which a node drives pods away; none if there is no such node."""
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE) if node is not None else ()


def patience(taint: Taint, tolerations: Iterable[Toleration], *, compares: bool = False) -> float:
    """Seconds a pod stays despite the taint: `FOR_GOOD`, or 0 where it does not tolerate it at all.

    The first toleration that matches decides, as the scheduler's does. `compares` lets tolerations compare numbers.
    """
    matching = (one for one in tolerations if tolerates(one, taint, compares=compares))
    first = next(matching, None)
    if first is None:
        return 0.0
    return FOR_GOOD if first.toleration_seconds is None else max(0.0, float(first.toleration_seconds))


def by_key(tolerations: Iterable[Toleration]) -> Callable[[str], list[Toleration]]:
    """Finds the tolerations that may decide about a NoExecute taint of some key, in order: a few, of however many."""
    found: dict[str, list[tuple[int, Toleration]]] = {}
    for place, one in enumerate(tolerations):
        if one.effect in ("", NO_EXECUTE):
            found.setdefault(one.key, []).append((place, one))
            if not one.key and one.operator == "Exists":
                break  # nobody asks those after it
    of_all_keys = found.pop("", [])
    return lambda key: [one for _, one in sorted((*found.get(key, ()), *of_all_keys), key=itemgetter(0))]


def tolerates(toleration: Toleration, taint: Taint, *, compares: bool = False) -> bool:
    """Return whether the toleration matches the taint (core/v1 Toleration; KEP-5471 for `Lt` and `Gt`)."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" if compares:
            return _is_less(taint.value, toleration.value)
        case "Gt" if compares:
            return _is_less(toleration.value, taint.value)
    return False


def _is_less(left: str, right: str) -> bool:
    """Return whether both are integers of 64 bits in their one usual form, and the left one is less."""
    if not (_INTEGER.fullmatch(left) and _INTEGER.fullmatch(right)):
        return False
    return -_LIMIT <= int(left) < int(right) < _LIMIT
