"""Decisions of the garbage collector: actions per object, and which resources it watches."""

import pytest

from controller_manager.common.api.model import ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.framework.client.discovery import Discovery, ServedResource
from controllers.garbage_collector.graph_builder import KnownResources
from controllers.garbage_collector.live import Delete, OwnerDecision, OwnerState, SetOwners, Stay, decide

SOLID, GONE, WAITING = OwnerState.SOLID, OwnerState.GONE, OwnerState.WAITING
FIRST, SECOND, THIRD = (
    OwnerReference(api_version="v1", kind="K", name=name, uid=name) for name in ("first", "second", "third")
)
BACKGROUND, FOREGROUND, ORPHAN = Delete("Background"), Delete("Foreground"), Delete("Orphan")


@pytest.mark.parametrize(
    ("states", "finalizers", "has_dependents", "expected"),
    [
        ((), (), False, Stay()),
        ((SOLID,), (), True, Stay()),
        ((SOLID, SOLID), (), True, Stay()),
        ((SOLID, GONE), (), False, SetOwners((FIRST,))),
        ((WAITING, SOLID), (), True, SetOwners((SECOND,))),
        ((GONE, SOLID, WAITING), (), True, SetOwners((SECOND,))),
        ((GONE,), (), True, BACKGROUND),
        ((GONE,), ("orphan",), True, ORPHAN),
        ((GONE,), ("foregroundDeletion",), True, FOREGROUND),
        ((GONE,), ("foregroundDeletion", "orphan"), True, ORPHAN),
        ((GONE,), ("example.org/hold",), True, BACKGROUND),
        ((GONE, WAITING), (), True, FOREGROUND),
        ((WAITING,), (), True, FOREGROUND),
        ((WAITING,), ("orphan",), True, FOREGROUND),
        ((WAITING,), (), False, BACKGROUND),
        ((WAITING,), ("orphan",), False, ORPHAN),
    ],
)
def test_action_by_owner_states_and_finalizers(
    states: tuple[OwnerState, ...], finalizers: tuple[str, ...], has_dependents: bool, expected: OwnerDecision
) -> None:
    owners = (FIRST, SECOND, THIRD)[: len(states)]
    assert decide(ObjectMeta(owner_references=owners, finalizers=finalizers), states, has_dependents) == expected


ALL = frozenset({"get", "list", "watch", "delete", "create"})


def served(group: str, version: str, plural: str, verbs: frozenset[str] = ALL) -> ServedResource:
    kind = plural.removesuffix("s").capitalize()
    return ServedResource(Resource(group, version, plural, kind, True, PartialObject), verbs, {})


def found(*every: ServedResource, failed: tuple[str, ...] = ()) -> Discovery:
    return Discovery(every, dict.fromkeys(failed, "broken"))


def watched(known: KnownResources) -> list[str]:
    return [f"{one.api_version}/{one.plural}" for one in known.watched.values()]


PODS, JOBS, OLD_JOBS = served("", "v1", "pods"), served("batch", "v1", "jobs"), served("batch", "v1beta1", "jobs")


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ([found(PODS, JOBS)], ["v1/pods", "batch/v1/jobs"]),
        ([found(JOBS, OLD_JOBS)], ["batch/v1/jobs"]),
        # Without events and resources that cannot be deleted, listed or watched.
        ([found(served("", "v1", "bindings", ALL - {"delete"}))], []),
        ([found(served("", "v1", "logs", ALL - {"watch"}))], []),
        ([found(served("", "v1", "events"), served("events.k8s.io", "v1", "events"))], []),
        # Resources are added and removed.
        ([found(PODS), found(PODS, JOBS)], ["v1/pods", "batch/v1/jobs"]),
        ([found(PODS, JOBS), found(PODS)], ["v1/pods"]),
        # Failed groups keep their resources; others are replaced.
        ([found(PODS, JOBS), found(PODS, failed=("batch/v1",))], ["v1/pods", "batch/v1/jobs"]),
        ([found(PODS, JOBS), found(failed=("/apis", "/api"))], ["v1/pods", "batch/v1/jobs"]),
        ([found(PODS, JOBS), found(JOBS, failed=("/apis",))], ["batch/v1/jobs"]),
        ([found(PODS, JOBS), found(PODS, failed=("apps/v1",))], ["v1/pods"]),
        # A version in use stays while it is served.
        ([found(OLD_JOBS), found(JOBS, OLD_JOBS)], ["batch/v1beta1/jobs"]),
        ([found(OLD_JOBS), found(JOBS)], ["batch/v1/jobs"]),
        ([found(JOBS, OLD_JOBS), found(OLD_JOBS, failed=("batch/v1",))], ["batch/v1beta1/jobs"]),
    ],
)
def test_watched_resources_by_discovery(passes: list[Discovery], expected: list[str]) -> None:
    known = KnownResources()
    for one in passes:
        known = known.after(one)
    assert watched(known) == expected


def test_owners_of_unwatched_kinds_are_resolved() -> None:
    known = KnownResources().after(found(served("example.org", "v1", "widgets", frozenset({"get"}))))
    assert watched(known) == []
    assert known.kinds["example.org", "Widget"].plural == "widgets"
    assert known.after(found(failed=("example.org/v1",))).kinds == known.kinds
    assert known.after(found()).kinds == {}


def test_kind_of_several_resources_resolves_to_the_stored_one() -> None:
    def widgets(plural: str, verbs: frozenset[str] = ALL) -> ServedResource:
        return ServedResource(Resource("example.org", "v1", plural, "Widget", True, PartialObject), verbs, {})

    for order in ((0, 1), (1, 0)):
        views = (widgets("widgets"), widgets("widgetviews", frozenset({"get"})))
        known = KnownResources().after(found(*(views[at] for at in order)))
        assert known.kinds["example.org", "Widget"].plural == "widgets"
    twice = KnownResources().after(found(widgets("widgets"), widgets("gadgets")))
    assert twice.kinds == {}
    assert watched(twice) == ["example.org/v1/widgets", "example.org/v1/gadgets"]
