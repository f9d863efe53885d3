"""What a delete request makes of an object: marked, its grace shortened, or gone (API concepts, States); pure.

| object                   | request            | becomes                                                             |
|--------------------------|--------------------|---------------------------------------------------------------------|
| live, its kind has grace | any                | marked: the deletion is due after the grace                         |
| live                     | any                | marked if anything holds it, otherwise gone                         |
| marked, grace running    | less grace         | due earlier, counted from the first request; gone if nothing is left |
| marked, grace running    | as much, or silent | as it is, its finalizers included                                   |
| marked, grace over       | any                | its finalizers follow the new propagation; gone if none is left     |

A kind with a second list of finalizers (`Strategy.finalizers`) is always marked first, without a grace, and left alone
while that list holds it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from apiserver_stub.call import Tree
from apiserver_stub.kinds.strategy import Strategy
from apiserver_stub.kinds.trees import get_in, put_in
from controller_manager.api.timestamps import format_time, parse_time

# What a policy of propagation makes of the finalizers by which the garbage collector learns of it.
HOLDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Background": (), "Orphan": ("orphan",), "Foreground": ("foregroundDeletion",)}
)
_HOLDS = frozenset(name for names in HOLDS.values() for name in names)
_GRACE, _WHEN = "deletionGracePeriodSeconds", "deletionTimestamp"
_LONGEST_GRACE = 1 << 31  # seconds; what is far beyond has no date


def begin_deletion(
    tree: Tree, strategy: Strategy, now: datetime, grace: int | None = None, policy: str | None = None
) -> bool:
    """Note a delete request in place; whether the object is to go at once, and then `tree` is its final state.

    `grace` and `policy` are None where the request is silent.
    """
    metadata = tree["metadata"]
    begins, running = _WHEN not in metadata, metadata.get(_GRACE) or 0
    grace = 1 if grace is not None and grace < 0 else grace
    if running and (grace is None or grace >= running):
        return False
    if not begins and strategy.finalizers and get_in(tree, strategy.finalizers):
        return False
    put_in(metadata, ("finalizers",), propagate(metadata.get("finalizers", []), strategy.dependents, policy) or None)
    held = "finalizers" in metadata
    if running:
        _shorten(metadata, running, grace or 0)
    elif begins:
        if not (held or strategy.graceful or strategy.finalizers):
            return True
        _begin(tree, strategy, now, grace)
    elif held:
        metadata[_GRACE] = 0
    return not (held or metadata.get(_GRACE) or (begins and strategy.finalizers))


def propagate(finalizers: list[str], usual: str, policy: str | None) -> list[str]:
    """The finalizers of an object that is deleted with a policy of propagation (None: the request names none).

    A silent request means what the object says already, or else the policy that is usual for its kind; of a kind
    without any (`usual` is empty) nothing is ever propagated.
    """
    said = [name for name in finalizers if name in _HOLDS][:1]
    if not usual:
        wanted: tuple[str, ...] = ()
    else:
        wanted = HOLDS[policy] if policy else tuple(said) or HOLDS[usual]
    return [
        *(name for name in finalizers if name not in _HOLDS or name in wanted),
        *(name for name in wanted if name not in finalizers),
    ]


def _begin(tree: Tree, strategy: Strategy, now: datetime, asked: int | None) -> None:
    metadata = tree["metadata"]
    grace = min(strategy.patience(tree, asked), _LONGEST_GRACE)
    metadata[_WHEN] = format_time(now + timedelta(seconds=grace))
    if not strategy.finalizers:
        metadata[_GRACE] = grace
    strategy.mark_deleted(tree)


def _shorten(metadata: Tree, running: int, grace: int) -> None:
    metadata[_WHEN] = format_time(parse_time(metadata[_WHEN]) - timedelta(seconds=running - grace))
    metadata[_GRACE] = grace
