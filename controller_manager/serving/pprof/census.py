"""How many objects of which type there are, and how large they are: a walk over everything that can be reached."""

import asyncio
import gc
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from types import ModuleType, NoneType
from typing import Any

import msgspec

_CHUNK = 1_000  # objects looked into before others may go on
_MOST_REMEMBERED = 1_000_000
# What refers to an object that has but one owner, while we ask: owner, list, variable, argument.
_ONE_OWNER = 4
_LEAVES = frozenset({str, bytes, int, float, bool, NoneType, msgspec.Raw})


@dataclass(slots=True)
class Census:
    """Count and own size in bytes by type; an object counts once, however many refer to it. `cut` tells of an early
    end.
    """

    by_type: dict[type, tuple[int, int]] = field(default_factory=dict)
    cut: bool = False

    def count(self, objects: Sequence[Any]) -> None:
        """Add objects that were not counted yet."""
        sizes = Counter(zip(map(type, objects), map(sys.getsizeof, objects, repeat(0)), strict=True))
        for (kind, size), count in sizes.items():
            own = msgspec.Raw.__basicsize__ if kind is msgspec.Raw else size  # that answers with an address
            before = self.by_type.get(kind, (0, 0))
            self.by_type[kind] = (before[0] + count, before[1] + count * own)


async def take_census(most: int = _MOST_REMEMBERED) -> Census:
    """Count everything; others go on meanwhile, so that this is no picture of one moment.

    The garbage collector lists only containers made after the start, and no object that it need not track. So the
    walk begins at those, at the modules, the tasks and the threads, and follows what they refer to. What has but one
    owner can be met only once, and need not be remembered: that is most of what informers hold. The walk ends early
    when `most` objects have to be remembered.
    """
    census = Census()
    left = [*gc.get_objects(), sys.modules, *asyncio.all_tasks(), *threading.enumerate()]
    met = {*map(id, left), id(left)}
    left = list({id(one): one for one in left}.values())
    met |= {id(one) for one in (left, met, census, census.by_type)}
    while left and not census.cut:
        chunk = left[-_CHUNK:]
        del left[-_CHUNK:]
        census.count(chunk)
        for one in _referents(chunk):
            if id(one) not in met:
                if sys.getrefcount(one) > _ONE_OWNER:
                    met.add(id(one))
                left.append(one)
        census.cut = len(met) >= most
        await asyncio.sleep(0)
    return census


def _referents(objects: Sequence[Any]) -> list[Any]:
    found, others = list[Any](), list[Any]()
    for one in objects:
        kind = type(one)
        if kind in _LEAVES:
            continue
        if kind is dict:  # those with text for keys do not mention them
            found += one.keys()
            found += one.values()
        elif issubclass(kind, msgspec.Struct) and not gc.is_tracked(one):  # those tell the garbage collector nothing
            found += [getattr(one, name) for name in kind.__struct_fields__ if hasattr(one, name)]
        elif issubclass(kind, ModuleType):  # that of asyncio mentions what it has freed (Python 3.12, 3.13)
            found.append(vars(one))
        else:
            others.append(one)
    found += gc.get_referents(*others)
    return found
