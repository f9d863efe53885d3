"""Assignment of locks to replicas: even, deterministic and stable."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.framework.leader.assignment import assign

names = st.text("abcdefghij", min_size=1, max_size=6)
replicas_of = st.sets(names, min_size=1, max_size=8)
families_of = st.dictionaries(names, st.integers(1, 9), max_size=12)


def locks_of(families: dict[str, int]) -> dict[str, str]:
    return {f"{family}/{index}": family for family, size in families.items() for index in range(size)}


@given(families_of, replicas_of)
def test_locks_are_shared_evenly_per_family(families: dict[str, int], replicas: set[str]) -> None:
    locks = locks_of(families)
    found = assign(locks, replicas)
    assert found.keys() == locks.keys()
    assert set(found.values()) <= replicas
    for family, size in families.items():
        shares = Counter(replica for lock, replica in found.items() if locks[lock] == family)
        assert max(shares.values()) <= -(-size // len(replicas))


@given(families_of, replicas_of)
def test_assignment_is_independent_of_order(families: dict[str, int], replicas: set[str]) -> None:
    locks = locks_of(families)
    backwards = dict(reversed(locks.items()))
    assert assign(locks, sorted(replicas)) == assign(backwards, sorted(replicas, reverse=True))


def test_without_replicas_assignment_is_empty() -> None:
    assert assign({"a": "a"}, ()) == {}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_single_locks_balance_uneven_shards(count: int) -> None:
    locks = locks_of({"deployment": 7, "job": 3} | {f"controller-{number}": 1 for number in range(36)})
    shares = Counter(assign(locks, [f"replica-{number}" for number in range(count)]).values())
    assert max(shares.values()) == -(-46 // count)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_forty_five_controllers_are_balanced(count: int) -> None:
    locks = {f"controller-{number}": f"controller-{number}" for number in range(45)}
    shares = Counter(assign(locks, [f"replica-{number}" for number in range(count)]).values())
    assert max(shares.values()) == -(-45 // count)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_new_replica_moves_few_locks(count: int) -> None:
    """The locks of the new replica must move, and at most a fifth of the others."""
    locks = {f"controller-{number}": f"controller-{number}" for number in range(60)}
    replicas = [f"replica-{number}" for number in range(count)]
    before, after = assign(locks, replicas), assign(locks, [*replicas, "new"])
    moved = [lock for lock in locks if before[lock] != after[lock] and after[lock] != "new"]
    assert len(moved) <= 60 / 5


@given(st.integers(1, 9), replicas_of)
def test_equal_shards_of_equal_families_are_together(size: int, replicas: set[str]) -> None:
    found = assign(locks_of({"deployment": size, "replicaset": size}), replicas)
    assert all(size == 1 or found[f"deployment/{n}"] == found[f"replicaset/{n}"] for n in range(size))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_new_replica_moves_few_shards(count: int) -> None:
    """The shards of the new replica must move; bounds move at most a quarter besides."""
    locks = locks_of({"deployment": 12})
    replicas = [f"replica-{number}" for number in range(count)]
    before, after = assign(locks, replicas), assign(locks, [*replicas, "new"])
    moved = [lock for lock in locks if before[lock] != after[lock]]
    assert len(moved) <= 12 / (count + 1) + 12 / 4
