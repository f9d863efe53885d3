"""What tells objects apart, and which of those that are named are known not to be there; pure."""

from collections import OrderedDict
from typing import NamedTuple

MOST_ABSENT = 500


class Identity(NamedTuple):
    """An object, or what a reference says of one; in a claim the namespace is that of the dependent."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    def agrees_with(self, claim: "Identity") -> bool:
        """Whether a claim means this very object; one without a namespace may be owned from everywhere."""
        return claim == self or (not self.namespace and claim._replace(namespace="") == self)


class Absent:
    """Owners known not to be there, the latest so many: a uid is never given again, so they will not come back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Identity, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, owner: Identity) -> None:
        """Remember one; without a namespace if its kind has none."""
        self._kept[owner] = None
        self._kept.move_to_end(owner)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def has(self, claim: Identity) -> bool:
        """Whether what a claim says is known not to be there."""
        for owner in (claim, claim._replace(namespace="")):
            if owner in self._kept:
                self._kept.move_to_end(owner)
                return True
        return False
