"""Assigns locks to replicas: rendezvous hashing with bounded loads; pure.

All replicas compute the same result, and a replica that joins or leaves moves few locks of others. A family is a set of
locks such as the shards of a controller; no replica gets more than its even share of a family, rounded up. Families
with several locks are assigned first, and in the same way: controllers with the same number of shards have the same
shards on a replica, where they share informers. Families with one lock then even out the load.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b


def assign(locks: Mapping[str, str], replicas: Collection[str]) -> dict[str, str]:
    """Return the replica for each lock; empty without replicas. `locks` has the family of each lock."""
    if not replicas:
        return {}
    sizes = Counter(locks.values())
    shards = [lock for lock in locks if sizes[locks[lock]] > 1]
    singles = [lock for lock in locks if sizes[locks[lock]] == 1]
    most = -(-len(locks) // len(replicas))
    chosen: dict[str, str] = {}
    load: Counter[str] = Counter()
    load_of: Counter[tuple[str, str]] = Counter()

    def give(lock: str, replica: str) -> None:
        chosen[lock] = replica
        load[replica] += 1
        load_of[locks[lock], replica] += 1

    for lock, replica in _by_affinity(_places(locks, shards), replicas):
        if lock not in chosen and load_of[locks[lock], replica] < -(-sizes[locks[lock]] // len(replicas)):
            give(lock, replica)
    for lock, replica in _by_affinity({lock: lock for lock in singles}, replicas):
        if lock not in chosen and load[replica] < most:
            give(lock, replica)
    return chosen


def _places(locks: Mapping[str, str], shards: Collection[str]) -> dict[str, str]:
    """Return the position of each shard within its family, as text."""
    seen: Counter[str] = Counter()
    places: dict[str, str] = {}
    for lock in sorted(shards, key=lambda lock: (len(lock), lock)):
        places[lock] = f"shard {seen[locks[lock]]}"
        seen[locks[lock]] += 1
    return places


def _by_affinity(places: Mapping[str, str], replicas: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of a lock and a replica, ordered by affinity."""
    pairs = [(_affinity(place, replica), lock, replica) for lock, place in places.items() for replica in replicas]
    return ((lock, replica) for _, lock, replica in sorted(pairs))


def _affinity(place: str, replica: str) -> bytes:
    return blake2b(f"{place}\n{replica}".encode(), digest_size=8).digest()
