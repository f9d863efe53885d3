"""Who of several replicas should hold which lock: rendezvous hashing with bounded loads; pure.

All replicas come to the same result, and whoever comes or goes moves little beside what is its own. No replica has more
than the even share of a family, rounded up, such as the shards of a controller. These are given first; what is alone in
its family evens out what that leaves.
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

    for lock, replica in _by_affinity(shards, replicas):
        if lock not in chosen and load_of[locks[lock], replica] < -(-sizes[locks[lock]] // len(replicas)):
            give(lock, replica)
    for lock, replica in _by_affinity(singles, replicas):
        if lock not in chosen and load[replica] < most:
            give(lock, replica)
    return chosen


def _by_affinity(locks: Collection[str], replicas: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs, those first that fit best."""
    pairs = [(_affinity(lock, replica), lock, replica) for lock in locks for replica in replicas]
    return ((lock, replica) for _, lock, replica in sorted(pairs))


def _affinity(lock: str, replica: str) -> bytes:
    return blake2b(f"{lock}\n{replica}".encode(), digest_size=8).digest()
