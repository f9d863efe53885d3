"""The owner graph is independent of the order of events and enqueues every affected object."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controllers.garbage_collector.graph import (
    Absent,
    Graph,
    GraphNode,
    Instruction,
    Misplaced,
    ObjectIdentity,
    Steps,
    Task,
    What,
    claim_of,
    is_waiting,
)

UIDS = ("a", "b", "c", "d", "e")
# The namespace of each object; "c" is cluster-scoped.
PLACES = {"a": "x", "b": "x", "c": "", "d": "y", "e": "x"}
STATES = ("live", "held", "waiting", "orphaning")
FINALIZERS = {"live": (), "held": ("example.org/hold",), "waiting": ("foregroundDeletion",), "orphaning": ("orphan",)}

Ref = tuple[str, str, bool | None]


def identity(uid: str, kind: str = "K") -> ObjectIdentity:
    return ObjectIdentity("g", kind, PLACES[uid], f"n-{uid}", uid)


def meta(uid: str, refs: tuple[Ref, ...] = (), state: str = "live") -> ObjectMeta:
    owners = tuple(
        OwnerReference(api_version="g/v1", kind=kind, name=f"n-{owner}", uid=owner, block_owner_deletion=blocks)
        for owner, kind, blocks in refs
    )
    return ObjectMeta(
        name=f"n-{uid}",
        namespace=PLACES[uid],
        uid=uid,
        owner_references=owners,
        finalizers=FINALIZERS[state],
        deletion_timestamp=None if state == "live" else "2026-01-01T00:00:00Z",
    )


def run(steps: Steps) -> list[Instruction]:
    """Run all steps of a change and return its tasks."""
    return [instruction for instructions in steps for instruction in instructions]


def shape(graph: Graph) -> dict[str, object]:
    """Return the content of the graph, independent of the order of events."""
    return {
        node.uid: (
            node.identity,
            node.meta,
            node.blocking,
            node.loose,
            {claim: dict(sorted(group.items())) for claim, group in node.claims.items()},
        )
        for node in graph
    }


REFS = st.lists(
    st.tuples(st.sampled_from(UIDS), st.sampled_from(("K", "K", "Other")), st.sampled_from((None, True, False))),
    max_size=3,
).map(tuple)


class Changes(RuleBasedStateMachine):
    """Objects are added, changed and deleted; `ordered` has the tasks since the last check."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.there: dict[str, ObjectMeta] = {}
        self.ordered: set[Instruction] = set()
        # Their deletion has begun and cannot be reverted.
        self.ended: set[str] = set()

    @rule(uid=st.sampled_from(UIDS), refs=REFS, state=st.sampled_from(STATES))
    def observe(self, uid: str, refs: tuple[Ref, ...], state: str) -> None:
        self.ended |= {uid} if state != "live" else set()
        self.there[uid] = meta(uid, refs, "held" if state == "live" and uid in self.ended else state)
        self.ordered.update(run(self.graph.observe(identity(uid), self.there[uid])))

    @rule(uid=st.sampled_from(UIDS), gone=st.booleans())
    def end(self, uid: str, gone: bool) -> None:
        self.there.pop(uid, None)
        self.ordered.update(run((self.graph.lose if gone else self.graph.forget)(identity(uid))))

    @invariant()
    def equals_a_rebuilt_graph(self) -> None:
        rebuilt = Graph()
        for uid, state in sorted(self.there.items(), reverse=True):
            run(rebuilt.observe(identity(uid), state))
        assert shape(rebuilt) == shape(self.graph)

    @invariant()
    def holds_observed_and_referenced(self) -> None:
        named = {ref.uid for uid, one in self.there.items() for ref in one.owner_references if ref.uid != uid}
        assert {node.uid for node in self.graph} == set(self.there) | named
        for node in self.graph:
            assert (node.identity is None) == (node.uid not in self.there)
            blocking = sum(blocks for group in node.claims.values() for blocks in group.values())
            assert node.blocking == blocking
            assert node.loose == self.loose(node)

    @invariant()
    def all_affected_are_enqueued(self) -> None:
        self.ordered = {one for one in self.ordered if isinstance(one, Task) and self.graph.needs(one)}
        for node in self.graph:
            orphan, look = Task(What.ORPHAN, node.uid), Task(What.LOOK, node.uid)
            assert not self.graph.needs(orphan) or orphan in self.ordered
            # An unobserved owner is enqueued for all claims of it, or each claimant is.
            others = node.dependents() if node.identity is None else self.unobserved(node)
            assert not self.graph.needs(look) or look in self.ordered or self.are_ordered(list(others))

    def loose(self, node: GraphNode) -> int:
        """Return the number of owner claims of a node that are not about a live owner."""
        assert node.identity is not None or node.meta is None
        references = node.meta.owner_references if node.meta is not None else ()
        claims = {claim_of(node.identity, one) for one in references if one.uid != node.uid and node.identity}
        return sum(not owner.is_solid(claim) for claim in claims if (owner := self.graph.get(claim.uid)) is not None)

    def unobserved(self, node: GraphNode) -> list[str]:
        owners = {reference.uid for reference in node.meta.owner_references} if node.meta else set()
        return [uid for uid in owners if uid not in self.there]

    def are_ordered(self, uids: list[str]) -> bool:
        looks = [Task(What.LOOK, uid) for uid in uids]
        return bool(uids) and all(look in self.ordered or not self.graph.needs(look) for look in looks)


Changes.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestChanges = Changes.TestCase


def test_deleted_owner_enqueues_its_dependents() -> None:
    graph = Graph()
    run(graph.observe(identity("a"), meta("a")))
    run(graph.observe(identity("b"), meta("b", (("a", "K", None),))))
    run(graph.observe(identity("d"), meta("d", (("a", "K", None),))))  # from another namespace
    assert set(run(graph.lose(identity("a")))) == {Task(What.LOOK, "b"), Task(What.LOOK, "d")}
    assert graph.is_absent(identity("a"))
    assert not graph.is_absent(identity("a")._replace(namespace="y"))


def test_cross_namespace_owner_is_reported_in_any_order() -> None:
    misplaced = Misplaced(identity("d"), identity("a")._replace(namespace="y"))
    for first, second in (("a", "d"), ("d", "a")):
        graph = Graph()
        refs: dict[str, tuple[Ref, ...]] = {"a": (), "d": (("a", "K", None),)}
        run(graph.observe(identity(first), meta(first, refs[first])))
        assert run(graph.observe(identity(second), meta(second, refs[second]))) == [
            misplaced,
            Task(What.LOOK, "d"),
        ]


def test_cluster_scoped_owner_is_valid_in_all_namespaces() -> None:
    graph = Graph()
    run(graph.observe(identity("c"), meta("c")))
    for uid in ("a", "d"):
        assert run(graph.observe(identity(uid), meta(uid, (("c", "K", None),)))) == []
        assert not graph.needs(Task(What.LOOK, uid))


def test_last_blocking_dependent_enqueues_its_owner() -> None:
    graph = Graph()
    run(graph.observe(identity("a"), meta("a", state="waiting")))
    run(graph.observe(identity("b"), meta("b", (("a", "K", True),))))
    run(graph.observe(identity("e"), meta("e", (("a", "K", True),))))
    assert run(graph.observe(identity("b"), meta("b", (("a", "K", False),)))) == [Task(What.LOOK, "b")]
    assert run(graph.lose(identity("e"))) == [Task(What.LOOK, "a")]


@pytest.mark.parametrize(
    ("refs", "expected"),
    [
        ({"a": "b", "b": "a"}, {"a": {"b"}, "b": {"a"}}),
        ({"a": "b", "b": "e", "e": "a"}, {"a": {"b"}, "b": {"e"}, "e": {"a"}}),
        ({"a": "b", "b": ""}, {"a": set(), "b": set()}),
        ({"a": "a"}, {"a": set()}),
    ],
)
def test_cycles_contain_waiting_owners_only(refs: dict[str, str], expected: dict[str, set[str]]) -> None:
    graph = Graph()
    for uid, owner in refs.items():
        owners: tuple[Ref, ...] = ((owner, "K", True),) if owner else ()
        run(graph.observe(identity(uid), meta(uid, owners, "waiting")))
    assert {uid: set(graph.cycles(uid)) for uid in refs} == expected


def test_version_of_owner_reference_is_ignored() -> None:
    reference = OwnerReference(api_version="g/v1beta1", kind="K", name="n-a", uid="a")
    assert claim_of(identity("b"), reference) == identity("a")


def test_absent_cache_evicts_the_oldest() -> None:
    absent = Absent(2)
    for uid in ("a", "b"):
        absent.add(identity(uid))
    assert absent.has(identity("a"))
    absent.add(identity("d"))
    assert len(absent) == 2
    assert [absent.has(identity(uid)) for uid in ("a", "b", "d")] == [True, False, True]


def test_orphan_finalizer_precedes_foreground() -> None:
    both = ObjectMeta(deletion_timestamp="2026-01-01T00:00:00Z", finalizers=("orphan", "foregroundDeletion"))
    assert not is_waiting(both)
