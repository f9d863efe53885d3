"""Shards of the work of a controller: which keys belong to one, and which objects its local copies hold; pure.

A key belongs to one shard for ever: which one is decided by its text alone, so that no two replicas ever disagree,
however far one lags behind. By namespace that is the hash of the namespace; by owner, of the namespace and the name of
the root owner, as the names of objects tell it: a replica set is called as its deployment, with a hash; a job of a cron
job as that, with a minute. A name that only looks so costs locality and nothing else.

By owner, the copies of a shard hold

    an object                                                    in
    whose controller has a root in the shard                     that shard
    of a kind that has keys, whose own root is in the shard      that shard
    that nobody controls, of a kind that has keys                no other; replica sets, which are adopted, in all
    that nobody controls, of another kind                        all shards: each owner that selects it may adopt it

KEP-5866 selects by hashes of uid and namespace, and objects do not carry those of their root owner. Its hash is also
too weak for names: those that differ in the last characters are in one range. So clients leave out what is of others.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from controller_manager.common.api.model import Object, controller_of
from controller_manager.common.api.resource import Key, Resource

# What the names of objects have behind the name of their owner: the hash of a template in the letters that
# `rand.SafeEncodeString` leaves, and the minute (since 1970) for which a cron job made a job, from 2017 to 2065.
_SUFFIXES = {
    "ReplicaSet": re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}\Z"),
    "Job": re.compile(r"-(?:2[5-9]|[34][0-9])[0-9]{6}\Z"),
}
# Kinds that have keys of their own and are adopted nevertheless.
_ADOPTED = ("ReplicaSet",)


def root_of(kind: str, name: str) -> str:
    """Return the name of the root owner of an object of a kind, as its name tells it."""
    suffix = _SUFFIXES.get(kind)
    return (suffix.sub("", name) if suffix is not None else "") or name


class Shard(msgspec.Struct, frozen=True):
    """The shard `index` (from 0) of `count`, by namespace, or by owner if there are kinds that have keys: `keyed` are
    the names of their resources.
    """

    index: int
    count: int
    keyed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"shard {self.index} of {self.count} {self.way}"

    @property
    def way(self) -> str:
        """How keys are divided: equal for those who divide them alike."""
        return f"by {'owner' if self.keyed else 'namespace'}"

    def has(self, resource: Resource[Any], key: Key) -> bool:
        """Return whether the key of an object of that resource belongs to the shard."""
        if self.keyed:
            return self._has(f"{key.namespace}/{root_of(resource.kind, key.name)}")
        return self._has(key.namespace or key.name)

    def keeps(self, resource: Resource[Any], obj: Object) -> bool:
        """Return whether the local copies of the shard hold an object, which is in a namespace."""
        meta = obj.metadata
        if not self.keyed:
            return self._has(meta.namespace)
        controller = controller_of(obj)
        if controller is not None and self._has(f"{meta.namespace}/{root_of(controller.kind, controller.name)}"):
            return True
        if resource.name not in self.keyed:
            return controller is None
        adopted = controller is None and resource.kind in _ADOPTED
        return adopted or self._has(f"{meta.namespace}/{root_of(resource.kind, meta.name)}")

    def _has(self, text: str) -> bool:
        return _hash(text) % self.count == self.index


@lru_cache(maxsize=4096)
def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
