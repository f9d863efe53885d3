"""The progress of an informer, and who waits for it to come further; pure.

Versions of one resource are compared as the numbers they are; one that is no number is only ever equal or not.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable

# Nobody can tell whether a version that is no number was passed over: of so many that are waited for, the oldest is
# forgotten. Whoever waits goes on after a while anyway.
_MOST_OPAQUE = 1000


class Progress:
    """`revision` is the version up to which every change is known; empty before anything is."""

    def __init__(self) -> None:
        self.revision = ""
        self._number = -1
        # Waiting for a number, as a heap, with a count that keeps callables from being compared.
        self._numbered: list[tuple[int, int, Callable[[], None]]] = []
        self._opaque: OrderedDict[str, list[Callable[[], None]]] = OrderedDict()
        self._count = 0

    def reached(self, version: str) -> bool:
        """Return whether the change that made `version` is known."""
        return int(version) <= self._number if version.isdecimal() else version == self.revision

    def when_reached(self, version: str, call: Callable[[], None]) -> None:
        """Call `call` once, when `version` is reached: at once if it is; never if it is passed over unrecognized."""
        if self.reached(version):
            call()
        elif version.isdecimal():
            self._count += 1
            heapq.heappush(self._numbered, (int(version), self._count, call))
        else:
            self._opaque.setdefault(version, []).append(call)
            if len(self._opaque) > _MOST_OPAQUE:
                self._opaque.popitem(last=False)

    def advance(self, revision: str) -> None:
        """Everything up to `revision` is known now."""
        self.revision = revision
        self._number = int(revision) if revision.isdecimal() else -1
        while self._numbered and self._numbered[0][0] <= self._number:
            heapq.heappop(self._numbered)[2]()
        for call in self._opaque.pop(revision, ()):
            call()
