"""Who of several replicas should hold which lock: rendezvous hashing with bounded loads; pure.

All replicas come to the same result, and whoever comes or goes moves little beside what is its own. No replica has more
than the even share of all locks, rounded up, nor of the locks of one family, such as the shards of a controller.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b


def assign(locks: Mapping[str, str], replicas: Collection[str]) -> dict[str, str]:
    """Return the replica for each lock; empty without replicas. `locks` has the family of each lock."""
    if not replicas:
        return {}
    sizes = Counter(locks.values())
    most, most_of = -(-len(locks) // len(replicas)), {one: -(-size // len(replicas)) for one, size in sizes.items()}
    chosen: dict[str, str] = {}
    load: Counter[str] = Counter()
    load_of: Counter[tuple[str, str]] = Counter()
    for lock, replica in _by_affinity(locks, replicas):
        family = locks[lock]
        if lock in chosen or load[replica] >= most or load_of[family, replica] >= most_of[family]:
            continue
        chosen[lock] = replica
        load[replica] += 1
        load_of[family, replica] += 1
    for lock in sorted(locks.keys() - chosen.keys()):  # where both bounds left no room
        replica = min(sorted(replicas), key=lambda one: (load_of[locks[lock], one], load[one]))
        chosen[lock] = replica
        load[replica] += 1
        load_of[locks[lock], replica] += 1
    return chosen


def _by_affinity(locks: Collection[str], replicas: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs, those first that fit best."""
    pairs = [(_affinity(lock, replica), lock, replica) for lock in locks for replica in replicas]
    return ((lock, replica) for _, lock, replica in sorted(pairs))


def _affinity(lock: str, replica: str) -> bytes:
    return blake2b(f"{lock}\n{replica}".encode(), digest_size=8).digest()
