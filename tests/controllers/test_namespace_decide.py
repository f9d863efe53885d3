"""Conditions and requeue times after a pass over a terminating namespace."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.timestamps import format_time
from controller_manager.framework.client.discovery import ServedResource
from controllers.namespace.outcome import (
    PassOutcome,
    Remains,
    addressable,
    is_settled,
    next_look,
    remains_of,
    with_outcome,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OVERDUE = "pods: 1 resource instance past its time, though no finalizer holds it"


def states(conditions: tuple[Condition, ...]) -> dict[str, str]:
    return {c.type: f"{c.status} {c.reason}" for c in conditions}


ALL_WELL = {
    "NamespaceDeletionDiscoveryFailure": "False ResourcesDiscovered",
    "NamespaceDeletionGroupVersionParsingFailure": "False ParsedGroupVersions",
    "NamespaceDeletionContentFailure": "False ContentDeleted",
    "NamespaceContentRemaining": "False ContentRemoved",
    "NamespaceFinalizersRemaining": "False ContentHasNoFinalizers",
}


@pytest.mark.parametrize(
    ("outcome", "true"),
    [
        pytest.param(PassOutcome(), {}, id="nothing left"),
        pytest.param(
            PassOutcome((Remains("pods", 2),)), {"NamespaceContentRemaining": "True SomeResourcesRemain"}, id="content"
        ),
        pytest.param(
            PassOutcome((Remains("pods", 2, Counter({"x/y": 2})),)),
            {
                "NamespaceContentRemaining": "True SomeResourcesRemain",
                "NamespaceFinalizersRemaining": "True SomeFinalizersRemain",
            },
            id="finalizers",
        ),
        pytest.param(
            PassOutcome(undiscovered=(("metrics.k8s.io/v1", "gone"),)),
            {"NamespaceDeletionDiscoveryFailure": "True DiscoveryFailed"},
            id="discovery",
        ),
        pytest.param(
            PassOutcome(unparsable=("a/b/c",)),
            {"NamespaceDeletionGroupVersionParsingFailure": "True GroupVersionParsingFailed"},
            id="group version",
        ),
        pytest.param(
            PassOutcome((Remains("pods", failure="no"),)),
            {"NamespaceDeletionContentFailure": "True ContentDeletionFailed"},
            id="failure",
        ),
        pytest.param(
            PassOutcome((Remains("pods", 2, overdue=True),)),
            {
                "NamespaceDeletionContentFailure": "True ContentDeletionFailed",
                "NamespaceContentRemaining": "True SomeResourcesRemain",
            },
            id="overdue",
        ),
    ],
)
def test_conditions_by_outcome_of_pass(outcome: PassOutcome, true: dict[str, str]) -> None:
    assert states(with_outcome((), outcome, NOW)) == ALL_WELL | true


@pytest.mark.parametrize(
    ("outcome", "kind", "message"),
    [
        (
            PassOutcome(undiscovered=(("a/v1", "it is ill"), ("b/v1", "so is this"))),
            "NamespaceDeletionDiscoveryFailure",
            "The resources of some API groups are not known, 2 failing: a/v1: it is ill, b/v1: so is this",
        ),
        (
            PassOutcome((Remains("pods", 2), Remains("jobs.batch", 1))),
            "NamespaceContentRemaining",
            "Some resources remain: jobs.batch has 1 resource instance, pods has 2 resource instances",
        ),
        (
            PassOutcome((Remains("pods", 2, Counter(b=1, a=2)), Remains("services", 1, Counter(a=1)))),
            "NamespaceFinalizersRemaining",
            "Finalizers of the content remain: a in 3 resource instances, b in 1 resource instance",
        ),
        (
            PassOutcome(tuple(Remains("x", failure=f"{n:02}") for n in range(22))),
            "NamespaceDeletionContentFailure",
            "The content of some resource types could not be deleted, 22 remaining: "
            + ", ".join(f"{n:02}" for n in range(20))
            + ", and 2 more",
        ),
        (
            PassOutcome((Remains("pods", 1, overdue=True),)),
            "NamespaceDeletionContentFailure",
            f"The content of some resource types could not be deleted, 1 remaining: {OVERDUE}",
        ),
    ],
)
def test_messages_list_remaining_content_in_stable_order(outcome: PassOutcome, kind: str, message: str) -> None:
    messages = {c.type: c.message for c in with_outcome((), outcome, NOW)}
    assert messages[kind] == message


def test_resolved_condition_turns_false_with_new_time() -> None:
    first = with_outcome((), PassOutcome((Remains("pods", 1),)), NOW)
    over = with_outcome(first, PassOutcome(), NOW + timedelta(seconds=9))
    assert states(over) == ALL_WELL
    times = {c.type: c.last_transition_time for c in over}
    assert times.pop("NamespaceContentRemaining") == "2026-01-01T00:00:09Z"
    assert set(times.values()) == {"2026-01-01T00:00:00Z"}


def test_same_outcome_changes_no_condition() -> None:
    outcome = PassOutcome(
        (Remains("pods", 1, Counter(a=1)), Remains("services", failure="no")), (("a/v1", "no"),), ("b//c",)
    )
    first = with_outcome((), outcome, NOW)
    assert with_outcome(first, outcome, NOW + timedelta(seconds=9)) == first


def test_transition_time_is_stable_while_status_is() -> None:
    first = with_outcome((), PassOutcome((Remains("pods", 2),)), NOW)
    again = with_outcome(first, PassOutcome((Remains("pods", 1),)), NOW + timedelta(seconds=9))
    assert [c.last_transition_time for c in again] == [c.last_transition_time for c in first]
    assert again != first


def partial(finalizers: list[str], grace: int | None = None, ends: timedelta | None = None) -> PartialObject:
    moment = None if ends is None else format_time(NOW + ends)
    metadata = {"finalizers": finalizers, "deletionGracePeriodSeconds": grace, "deletionTimestamp": moment}
    return msgspec.convert({"metadata": metadata}, PartialObject)


def test_remaining_counts_finalizers_and_longest_grace() -> None:
    found = remains_of("pods", [partial(["a", "b"]), partial(["a"], grace=40), partial([], grace=10)], NOW)
    assert (found.count, found.finalizers, found.wait) == (3, Counter(a=2, b=1), 40)


PAST, AHEAD = timedelta(seconds=-1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("objects", "overdue"),
    [
        ([], False),
        ([partial([], 30, PAST)], True),
        ([partial([], 30, AHEAD)], False),
        ([partial([], 30, PAST), partial([], 30, AHEAD)], False),
        ([partial([], 30, PAST), partial(["a"], 0, PAST)], False),
        ([partial([])], True),
    ],
)
def test_objects_without_finalizers_are_overdue_after_grace(objects: list[PartialObject], overdue: bool) -> None:
    assert remains_of("pods", objects, NOW).overdue is overdue


@pytest.mark.parametrize(
    ("remains", "age", "period", "expected"),
    [
        (Remains("pods", 1), 0, 300, 0.5),
        (Remains("pods", 1), 10, 300, 5),
        (Remains("pods", 1), 600, 300, 15),
        (Remains("pods", 1, wait=30), 600, 300, 16),
        (Remains("pods", 1, wait=3600), 6000, 300, 300),
    ],
)
def test_next_check_interval_grows_with_age(remains: Remains, age: float, period: float, expected: float) -> None:
    assert next_look(PassOutcome((remains,)), age, period) == expected


def test_only_pass_without_remaining_content_is_empty() -> None:
    assert PassOutcome((Remains("pods"),)).empty
    assert not PassOutcome((Remains("pods", 1),)).empty
    assert not PassOutcome((Remains("pods", failure="x"),)).empty
    assert not PassOutcome(undiscovered=(("a", "x"),)).empty
    assert not PassOutcome(unparsable=("a",)).empty


@pytest.mark.parametrize(
    ("metadata", "settled"),
    [
        ({}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/hold"]}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan", "example.org/hold"]}, False),
        ({"finalizers": ["example.org/hold"]}, False),
    ],
)
def test_deleted_objects_are_settled(metadata: dict[str, Any], settled: bool) -> None:
    assert is_settled(msgspec.convert({"metadata": metadata}, PartialObject)) is settled


def served(group: str, version: str, plural: str, *verbs: str, namespaced: bool = True) -> ServedResource:
    return ServedResource(Resource(group, version, plural, "Kind", namespaced, PartialObject), frozenset(verbs), {})


def test_deletable_resources_of_namespace() -> None:
    found = [
        served("", "v1", "configmaps", "list", "delete", "deletecollection"),
        served("", "v1", "bindings", "create"),
        served("", "v1", "nodes", "list", "delete", namespaced=False),
        served("example.org", "v1", "unlisted", "delete", "deletecollection"),
        served("example.org", "v1", "only-by-name", "delete"),
        served("example.org", "v1", "one-by-one", "delete", "list"),
        served("example.org", "a/b", "strange", "delete", "list"),
        served("example.org", "a/b", "stranger", "delete", "list"),
    ]
    ours, unparsable = addressable(found)
    assert [one.resource.plural for one in ours] == ["configmaps", "unlisted", "one-by-one"]
    assert unparsable == ("example.org/a/b",)
