"""What a pass over a namespace being deleted means for its conditions and for the next look."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controller_manager.api.edit import Condition
from controller_manager.api.model import PartialObject
from controllers.namespace import Outcome, Remains, next_look, remains_of, with_outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def states(conditions: tuple[Condition, ...]) -> dict[str, str]:
    return {c.type: f"{c.status} {c.reason}" for c in conditions}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(Outcome(), {}, id="nothing left"),
        pytest.param(
            Outcome((Remains("pods", 2),)), {"NamespaceContentRemaining": "True SomeResourcesRemain"}, id="content"
        ),
        pytest.param(
            Outcome((Remains("pods", 2, Counter({"x/y": 2})),)),
            {
                "NamespaceContentRemaining": "True SomeResourcesRemain",
                "NamespaceFinalizersRemaining": "True SomeFinalizersRemain",
            },
            id="finalizers",
        ),
        pytest.param(
            Outcome(undiscovered=("metrics.k8s.io/v1",)),
            {"NamespaceDeletionDiscoveryFailure": "True DiscoveryFailed"},
            id="discovery",
        ),
        pytest.param(
            Outcome((Remains("pods", failure="no"),)),
            {"NamespaceDeletionContentFailure": "True ContentDeletionFailed"},
            id="failure",
        ),
    ],
)
def test_conditions(outcome: Outcome, expected: dict[str, str]) -> None:
    assert states(with_outcome((), outcome, NOW)) == expected


def test_a_condition_turns_false_when_it_is_over() -> None:
    first = with_outcome((), Outcome((Remains("pods", 1),)), NOW)
    over = with_outcome(first, Outcome(), NOW + timedelta(seconds=9))
    assert states(over) == {"NamespaceContentRemaining": "False ContentRemoved"}
    assert over[0].last_transition_time == "2026-01-01T00:00:09Z"


def test_each_condition_has_a_reason_for_when_it_is_over() -> None:
    everything = Outcome((Remains("pods", 1, Counter(a=1)), Remains("services", failure="no")), ("metrics.k8s.io/v1",))
    assert states(with_outcome(with_outcome((), everything, NOW), Outcome(), NOW)) == {
        "NamespaceDeletionDiscoveryFailure": "False ResourcesDiscovered",
        "NamespaceDeletionContentFailure": "False ContentDeleted",
        "NamespaceContentRemaining": "False ContentRemoved",
        "NamespaceFinalizersRemaining": "False ContentHasNoFinalizers",
    }


def test_the_transition_time_stays_while_the_status_does() -> None:
    first = with_outcome((), Outcome((Remains("pods", 2),)), NOW)
    again = with_outcome(first, Outcome((Remains("pods", 1),)), NOW + timedelta(seconds=9))
    assert again[0].last_transition_time == first[0].last_transition_time
    assert again[0].message != first[0].message


def partial(finalizers: list[str], grace: int | None = None) -> PartialObject:
    return msgspec.convert({"metadata": {"finalizers": finalizers, "deletionGracePeriodSeconds": grace}}, PartialObject)


def test_remains_count_finalizers_and_take_the_longest_promise() -> None:
    found = remains_of("pods", [partial(["a", "b"]), partial(["a"], grace=40), partial([], grace=10)])
    assert (found.count, found.finalizers, found.wait) == (3, Counter(a=2, b=1), 40)


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
def test_the_next_look_comes_later_and_later(remains: Remains, age: float, period: float, expected: float) -> None:
    assert next_look(Outcome((remains,)), age, period) == expected


def test_only_a_clean_pass_is_empty() -> None:
    assert Outcome((Remains("pods"),)).empty
    assert not Outcome((Remains("pods", 1),)).empty
    assert not Outcome((Remains("pods", failure="x"),)).empty
    assert not Outcome(undiscovered=("a",)).empty
