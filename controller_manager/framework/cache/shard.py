"""Shards of a controller's work: which keys belong to a shard, and which objects its informers hold; pure.

The shard of a key depends only on its text and never changes, so replicas always agree, even if one lags behind. By
namespace, it is the hash of the namespace. By owner, it is the hash of the namespace and the name of the root owner,
which is derived from the object's name: a ReplicaSet is named after its Deployment plus a hash, a Job after its CronJob
plus a minute. A name that only looks like that costs locality and nothing else.

By owner, the informers of a shard hold

    an object                                                    in
    whose controller has a root in the shard                     that shard
    of a kind that has keys, whose own root is in the shard      that shard
    without a controller, of a kind that has keys                no other; ReplicaSets (can be adopted) in all shards
    without a controller, of another kind                        all shards: any owner that selects it may adopt it

KEP-5866 lets the server select by hashes of uid and namespace, but objects do not carry the uid of their root owner.
Its hash is also too weak for names: names that differ only in the last characters fall into one range. So clients drop
the objects of other shards.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from controller_manager.common.api.model import Object, controller_of
from controller_manager.common.api.resource import Key, Resource

# Suffixes that follow the owner's name: a template hash in the alphabet of `rand.SafeEncodeString`, and the scheduled
# minute of a CronJob's Job (since 1970; the pattern covers 2017 to 2065).
_SUFFIXES = {
    "ReplicaSet": re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}\Z"),
    "Job": re.compile(r"-(?:2[5-9]|[34][0-9])[0-9]{6}\Z"),
}
# Kinds that have keys of their own and can still be adopted.
_ADOPTED = ("ReplicaSet",)


def root_of(kind: str, name: str) -> str:
    """Return the name of an object's root owner, derived from the object's kind and name."""
    suffix = _SUFFIXES.get(kind)
    return (suffix.sub("", name) if suffix is not None else "") or name


class Shard(msgspec.Struct, frozen=True):
    """The shard `index` (from 0) of `count`: by owner if `keyed` names resources that have keys, else by namespace."""

    index: int
    count: int
    keyed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"shard {self.index} of {self.count} {self.way}"

    @property
    def way(self) -> str:
        """How keys are divided, as text."""
        return f"by {'owner' if self.keyed else 'namespace'}"

    def has(self, resource: Resource[Any], key: Key) -> bool:
        """Return whether the key of an object of that resource belongs to this shard."""
        if self.keyed:
            return self._has(f"{key.namespace}/{root_of(resource.kind, key.name)}")
        return self._has(key.namespace or key.name)

    def keeps(self, resource: Resource[Any], obj: Object) -> bool:
        """Return whether the informers of this shard hold a namespaced object."""
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
