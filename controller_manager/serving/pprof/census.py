"""How many objects of which type there are, and how large they are: a walk over everything that can be reached."""

import asyncio
import gc
import sys
import threading
from types import ModuleType
from typing import Any

import msgspec

_CHUNK = 1_000  # objects looked at before others may go on
_MOST_REMEMBERED = 1_000_000
# What refers to an object that has but one owner, while we look at it: owner, list, variable, argument.
_ONE_OWNER = 4


class Census:
    """Counts and own sizes in bytes by type (module and name); an object counts once, however many refer to it.

    The garbage collector lists only containers made after the start, and no object that it need not track. So the
    walk begins at those, at the modules, the tasks and the threads, and follows what they refer to. What has but one
    owner can be met only once, and need not be remembered: that is most of what informers hold.

    The walk ends early when `most` objects have to be remembered.
    """

    def __init__(self, most: int = _MOST_REMEMBERED) -> None:
        self.cut = False
        self._most = most
        self._sums: dict[type, list[int]] = {}
        self._remembered: set[int] = set()
        # Counted, but not looked into yet.
        self._left: list[Any] = []

    def by_type(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Count and size by module and name of a type."""
        return {_name(kind): (count, size) for kind, (count, size) in self._sums.items()}

    async def take(self) -> None:
        """Walk; others go on meanwhile, so that this is no picture of one moment. `cut` tells of an early end."""
        roots = [*gc.get_objects(), sys.modules, *asyncio.all_tasks(), *threading.enumerate()]
        self._remembered |= {id(roots), id(self), *map(id, vars(self).values())}
        while (roots or self._left) and not self.cut:
            for _ in range(_CHUNK):
                if self._left:
                    self._meet(_referents(self._left.pop()))
                elif roots:
                    self._meet([roots.pop()], root=True)
            self.cut = len(self._remembered) >= self._most
            await asyncio.sleep(0)
        self._left.clear()

    def _meet(self, found: list[Any], *, root: bool = False) -> None:
        """Count what was not met yet."""
        for one in found:
            if id(one) in self._remembered:
                continue
            if root or sys.getrefcount(one) > _ONE_OWNER:
                self._remembered.add(id(one))
            sums = self._sums.setdefault(type(one), [0, 0])
            sums[0] += 1
            sums[1] += _size(one)
            self._left.append(one)


def _referents(one: Any) -> list[Any]:
    if isinstance(one, msgspec.Struct) and not gc.is_tracked(one):  # those tell the garbage collector nothing
        return [getattr(one, name) for name in one.__struct_fields__ if hasattr(one, name)]
    if type(one) is dict:  # those with text for keys do not mention them
        return [*one.keys(), *one.values()]
    if isinstance(one, ModuleType):  # of its own memory, that of asyncio mentions what it has freed (Python 3.12, 3.13)
        return [vars(one)]
    return gc.get_referents(one)


def _size(one: Any) -> int:
    return (
        msgspec.Raw.__basicsize__ if type(one) is msgspec.Raw else sys.getsizeof(one, 0)
    )  # it answers with an address


def _name(kind: type) -> tuple[str, str]:
    return str(getattr(kind, "__module__", "")), kind.__qualname__
