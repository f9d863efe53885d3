"""Sizes, revisions, templates and conditions of deployments, as tables."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.apps import (
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdateDeployment,
)
from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import PodTemplateSpec
from controller_manager.common.api.model import ObjectMeta
from controllers.deployment import revisions
from controllers.deployment.limits import SurgeLimits, limits_of
from controllers.deployment.sizes import have_ended, is_scaled, newest_size, none_of, proportional, rolling
from controllers.deployment.status import next_look, pause_condition, rollout_status, status_of
from controllers.deployment.templates import HASH, is_same, new_replica_set, template_hash

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
AT_NOW, AGO = "2026-01-01T12:00:00Z", "2026-01-01T11:58:00Z"
Part = int | str | None


def deployment(
    replicas: int = 10,
    surge: Part = 3,
    unavailable: Part = 2,
    *,
    kind: str = "RollingUpdate",
    status: DeploymentStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Deployment:
    strategy = DeploymentStrategy(
        type=kind, rolling_update=RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    )
    meta = ObjectMeta(name="web", namespace="d", uid="u", generation=3, annotations=annotations)
    given = DeploymentSpec(replicas=replicas, strategy=strategy, **spec)
    return Deployment(metadata=meta, spec=given, status=status or DeploymentStatus())


def sized(
    name: str,
    replicas: int,
    available: int | None = None,
    *,
    age: int = 0,
    told: tuple[int, int] | None = None,
    annotations: Mapping[str, str] | None = None,
    generation: int = 1,
    **status: Any,
) -> ReplicaSet:
    """A replica set, `told` what size its deployment has and how many pods there may be; of a high `age`, it is old."""
    notes = dict(annotations or {})
    if told is not None:
        notes |= {revisions.DESIRED: str(told[0]), revisions.MAXIMUM: str(told[1])}
    meta = ObjectMeta(
        name=name,
        uid=name,
        generation=generation,
        creation_timestamp=f"2026-01-01T{10 - age:02}:00:00Z",
        annotations=notes,
    )
    count = replicas if available is None else available
    known = {
        "replicas": status.pop("there", replicas),
        "ready_replicas": count,
        "available_replicas": count,
        "observed_generation": 1,
    }
    return ReplicaSet(
        metadata=meta, spec=ReplicaSetSpec(replicas=replicas), status=ReplicaSetStatus(**{**known, **status})
    )


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "limits"),
    [
        pytest.param(10, 3, 2, SurgeLimits(3, 2), id="numbers"),
        pytest.param(10, "25%", "25%", SurgeLimits(3, 2), id="up for the surge, down for the others"),
        pytest.param(2, "0%", "1%", SurgeLimits(0, 1), id="both would be 0"),
        pytest.param(0, 0, 0, SurgeLimits(0, 0), id="no replicas"),
        pytest.param(0, "25%", 3, SurgeLimits(0, 0), id="no replicas, none unavailable"),
        pytest.param(3, 0, 9, SurgeLimits(0, 3), id="no more than there are"),
        pytest.param(3, None, None, SurgeLimits(0, 1), id="nothing said"),
        pytest.param(3, "many", "few", SurgeLimits(0, 1), id="nonsense"),
        pytest.param(3, "200%", 0, SurgeLimits(6, 0), id="more than all"),
    ],
)
def test_limits(replicas: int, surge: Part, unavailable: Part, limits: SurgeLimits) -> None:
    assert limits_of(deployment(replicas, surge, unavailable)) == limits
    assert limits_of(deployment(replicas, surge, unavailable, kind="Recreate")) == SurgeLimits(0, 0)


@pytest.mark.parametrize(
    ("newest", "old", "steps"),
    [
        pytest.param(sized("n", 12), [], {"n": 10}, id="larger than wanted"),
        pytest.param(sized("n", 0), [sized("a", 10)], {"n": 3}, id="a surge"),
        pytest.param(sized("n", 0), [sized("a", 4), sized("b", 4)], {"n": 5}, id="a surge, and what is missing"),
        pytest.param(sized("n", 8), [sized("a", 1)], {"n": 10}, id="never more than wanted"),
        pytest.param(sized("n", 3, 0), [sized("a", 10)], {"a": 8}, id="as many less as need not be available"),
        pytest.param(sized("n", 5, 0), [sized("a", 8)], {}, id="wait for pods to be available"),
        pytest.param(sized("n", 5, 2), [sized("a", 8)], {"a": 6}, id="some are"),
        pytest.param(sized("n", 5, 5), [sized("a", 8, 7)], {"a": 3}, id="of those that are not available first"),
        pytest.param(
            sized("n", 3, 3), [sized("a", 4, 1, age=1), sized("b", 6, 6, age=2)], {"a": 1, "b": 4}, id="ill ones first"
        ),
        pytest.param(sized("n", 3, 3), [sized("a", 5, age=1), sized("b", 5, age=2)], {"b": 0}, id="the oldest first"),
        pytest.param(sized("n", 3, 0), [sized("a", 10, 4)], {"a": 8}, id="ill ones, no more than may be missing"),
        pytest.param(sized("n", 10), [sized("a", 0, age=1)], {}, id="complete"),
        pytest.param(sized("n", 10), [sized("a", 3)], {"a": 0}, id="the last of the old"),
        pytest.param(sized("n", 10, 7), [sized("a", 3)], {"a": 1}, id="the newest is not available yet"),
        pytest.param(
            sized("n", 3, 3), [sized("a", 10, generation=2)], {}, id="what the status of a set says is too old"
        ),
        pytest.param(sized("n", 3, 3, generation=2), [sized("a", 10)], {}, id="what that of the newest says is"),
        pytest.param(
            sized("n", 0, generation=2), [sized("a", 13)], {"a": 8}, id="that of one without pods is not waited for"
        ),
        pytest.param(sized("n", 0), [sized("a", 8, generation=2)], {}, id="nor is there known to be room then"),
        pytest.param(sized("n", 0), [sized("a", 8, there=11)], {"n": 2}, id="pods yet to be deleted take room"),
        pytest.param(sized("n", 5, 1), [sized("a", 5, 8), sized("b", 3)], {"a": 4}, id="pods beyond a size count not"),
    ],
)
def test_steps_of_a_rolling_update(newest: ReplicaSet, old: list[ReplicaSet], steps: dict[str, int]) -> None:
    found = rolling(deployment(10, 3, 2), newest, old)
    assert {one.metadata.name: size for one, size in found} == steps


_COUNTS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (pair[0], min(pair)))


@given(
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(0, 5),
    _COUNTS,
    st.lists(_COUNTS, max_size=4),
)
def test_a_step_keeps_the_limits(
    replicas: int, surge: int, unavailable: int, newest: tuple[int, int], old: list[tuple[int, int]]
) -> None:
    wanted = deployment(replicas, surge, unavailable)
    limits = limits_of(wanted)
    sets = [sized(str(number), *counts, age=number) for number, counts in enumerate(old)]
    first = sized("n", *newest)
    sizes = {one.metadata.name: one.spec.replicas for one in (first, *sets)}
    before, available = sum(sizes.values()), newest[1] + sum(one for _, one in old)
    sizes |= {one.metadata.name: size for one, size in rolling(wanted, first, sets)}
    assert all(size >= 0 for size in sizes.values())
    assert sum(sizes.values()) <= max(before, replicas + limits.surge)
    # Pods that are not available are deleted first.
    left = sum(min(one.status.available_replicas, sizes[one.metadata.name]) for one in (first, *sets))
    assume(newest[0] <= replicas)
    assert left >= min(available, replicas - limits.unavailable)


@given(st.integers(1, 10), st.integers(0, 4), st.integers(0, 4), st.integers(1, 10))
def test_a_rolling_update_comes_to_its_end(replicas: int, surge: int, unavailable: int, start: int) -> None:
    wanted = deployment(replicas, surge, unavailable)
    newest, old = sized("n", 0), sized("a", start)
    for _ in range(60):
        steps = rolling(wanted, newest, [old])
        for one, size in steps:
            resized = sized(one.metadata.name, size)
            newest, old = (resized, old) if one is newest else (newest, resized)
    assert (newest.spec.replicas, old.spec.replicas) == (replicas, 0)


def test_the_first_size_of_a_replica_set() -> None:
    assert newest_size(deployment(10, 3, 2), None, []) == 10
    assert newest_size(deployment(10, 3, 2), None, [sized("a", 10)]) == 3
    assert newest_size(deployment(10, 0, 2), None, [sized("a", 10)]) == 0
    assert newest_size(deployment(10, kind="Recreate"), None, [sized("a", 10)]) == 10


def test_recreation_ends_all_others() -> None:
    assert [(one.metadata.name, size) for one, size in none_of([sized("a", 3), sized("b", 0)])] == [("a", 0)]


@pytest.mark.parametrize(
    ("one", "ended"),
    [
        (sized("a", 0), True),
        (sized("a", 0, generation=2), False),
        (sized("a", 0, there=1), False),
        (sized("a", 0, terminating_replicas=1), False),
        (sized("a", 0, terminating_replicas=0), True),
    ],
    ids=["none", "an old status", "one too many", "one that is being deleted", "none that is being deleted"],
)
def test_whether_pods_are_left(one: ReplicaSet, ended: bool) -> None:
    assert have_ended([sized("b", 0), one]) is ended


@pytest.mark.parametrize(
    ("told", "replicas", "scaled"),
    [((10, 13), 4, False), ((9, 12), 4, True), ((9, 12), 0, False), (None, 4, False), ((-1, 0), 4, False)],
)
def test_whether_it_was_scaled(told: tuple[int, int] | None, replicas: int, scaled: bool) -> None:
    assert is_scaled(deployment(10), [sized("a", 10, told=(10, 13)), sized("b", replicas, told=told)]) is scaled


@pytest.mark.parametrize(("others", "scaled"), [(0, True), (1, False)])
def test_sets_that_lose_their_pods_are_not_scaled_before(others: int, scaled: bool) -> None:
    both = [sized("a", 4, told=(1, 2)), sized("b", others, told=(1, 2))]
    assert is_scaled(deployment(5, kind="Recreate"), both) is scaled


@pytest.mark.parametrize(
    ("replicas", "newest", "old", "steps"),
    [
        pytest.param(5, sized("n", 10, told=(10, 13)), [], {"n": 5}, id="one set"),
        pytest.param(5, None, [sized("a", 10, age=1)], {"a": 5}, id="one set, an old one"),
        pytest.param(5, None, [sized("a", 0, age=2), sized("b", 0, age=1)], {"b": 5}, id="none has pods: the youngest"),
        pytest.param(5, sized("n", 0), [sized("a", 0, age=1)], {"n": 5}, id="none has pods: the newest"),
        pytest.param(0, sized("n", 0), [], {}, id="none has pods, none is wanted"),
        pytest.param(5, None, [], {}, id="no set"),
        pytest.param(5, sized("n", 5, told=(4, 7)), [], {"n": 5}, id="the right size, and it is to know it"),
        pytest.param(10, sized("n", 10, told=(10, 13)), [sized("a", 2, age=1)], {"a": 0}, id="saturated"),
        pytest.param(
            *(20, sized("n", 5, told=(10, 13)), [sized("a", 8, age=1, told=(10, 13))]),
            *({"n": 9, "a": 14},),
            id="up, in proportion",
        ),
        pytest.param(
            *(5, sized("n", 5, told=(10, 13)), [sized("a", 8, age=1, told=(10, 13))]),
            *({"n": 3, "a": 5},),
            id="down, in proportion",
        ),
        pytest.param(
            *(0, sized("n", 5, told=(10, 13)), [sized("a", 8, age=1, told=(10, 13))]),
            *({"n": 0, "a": 0},),
            id="to none",
        ),
        pytest.param(
            *(12, sized("n", 4, told=(5, 8)), [sized("a", 4, age=1, told=(5, 8))]),
            *({"n": 8, "a": 7},),
            id="what is left over goes to the newest of the largest",
        ),
    ],
)
def test_sizes_in_proportion(
    replicas: int, newest: ReplicaSet | None, old: list[ReplicaSet], steps: dict[str, int]
) -> None:
    found = proportional(deployment(replicas, 3, 2), newest, old)
    assert {one.metadata.name: size for one, size in found} == steps


@given(st.integers(0, 30), st.lists(st.integers(1, 12), min_size=2, max_size=5), st.integers(1, 30), st.integers(0, 4))
def test_proportions_make_use_of_all_pods_there_may_be(replicas: int, now: list[int], told: int, surge: int) -> None:
    wanted = deployment(replicas, surge, 1)
    sets = [sized(str(at), size, 0, age=at, told=(told, told + surge)) for at, size in enumerate(now)]
    sizes = [size for _, size in proportional(wanted, sets[0], sets[1:])]
    assert all(size >= 0 for size in sizes)
    most = replicas + limits_of(wanted).surge if replicas else 0
    assert sum(sizes) == most or (sum(sizes) > most and min(sizes) == 0)


def test_a_deployment_that_is_recreated_is_not_scaled_in_proportion() -> None:
    assert proportional(deployment(5, kind="Recreate"), sized("n", 5, 1), [sized("a", 8)]) == []


REVISION, HISTORY = revisions.REVISION, revisions.HISTORY


@pytest.mark.parametrize(
    ("old", "known", "wanted"),
    [
        pytest.param(["1", "4"], {}, {REVISION: "5"}, id="adopted"),
        pytest.param([], {REVISION: "1"}, {REVISION: "1"}, id="the only one"),
        pytest.param(["1"], {REVISION: "7"}, {REVISION: "7"}, id="those between are gone"),
        pytest.param(["4"], {REVISION: "2"}, {REVISION: "5", HISTORY: "2"}, id="gone back to"),
        pytest.param(
            ["4"], {REVISION: "3", HISTORY: "1,2"}, {REVISION: "5", HISTORY: "1,2,3"}, id="gone back to, once more"
        ),
        pytest.param(["4"], {REVISION: "x"}, {REVISION: "x"}, id="no number"),
        pytest.param(["3546343826724305832"], {}, {REVISION: "3546343826724305833"}, id="a large one"),
        pytest.param(["9223372036854775808"], {}, {REVISION: "1"}, id="one that is too large"),
        pytest.param(["x"], {REVISION: "0"}, {REVISION: "1", HISTORY: "0"}, id="the others say none"),
    ],
)
def test_revisions(old: list[str], known: dict[str, str], wanted: dict[str, str]) -> None:
    others = [sized(text, 0, annotations={REVISION: text}) for text in old]
    assert revisions.annotations_of_newest(deployment(), others, sized("n", 1, annotations=known)) == wanted


def test_the_oldest_numbers_of_a_long_history_are_forgotten() -> None:
    known = {REVISION: "900", HISTORY: ",".join(map(str, range(300, 799)))}
    newest = sized("n", 1, annotations=known)
    found = revisions.annotations_of_newest(deployment(), [sized("a", 0, annotations={REVISION: "901"})], newest)
    assert len(found[HISTORY]) <= 2000
    assert found[HISTORY].endswith(",798,900")


def test_annotations_of_the_deployment_are_those_of_its_newest_set() -> None:
    given = {"reason": "why", "kubectl.kubernetes.io/last-applied-configuration": "{}", REVISION: "9", "kept": "new"}
    one = sized("n", 1, annotations={"kept": "old", "own": "x"})
    found = revisions.annotations_of_newest(deployment(annotations=given), [], one)
    assert found == {"reason": "why", "kept": "new", "own": "x", REVISION: "1"}
    made = revisions.annotations_of_newest(deployment(4, 3, 0, annotations=given), [], None)
    sizes = {revisions.DESIRED: "4", revisions.MAXIMUM: "7"}
    assert made == {"reason": "why", "kept": "new", REVISION: "1", **sizes}


def test_going_back_takes_the_template_and_its_reason() -> None:
    then = sized("n", 0, annotations={REVISION: "2", "reason": "before", revisions.DESIRED: "4"})
    labels = {"app": "web", HASH: "x"}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=msgspec.Raw(b"{}"))
    then = replace(then, spec=replace(then.spec, template=template))
    now = deployment(annotations={"reason": "after", "more": "y", REVISION: "3"})
    found = revisions.rolled_back(now, then)
    assert found.metadata.annotations == {"reason": "before", REVISION: "3"}
    assert found.spec.template.metadata.labels == {"app": "web"}
    assert revisions.last_but_one([then, sized("b", 1, annotations={REVISION: "3"}), sized("c", 1)]) == 2


def template(spec: dict[str, Any], *, annotations: dict[str, str] | None = None, **labels: str) -> PodTemplateSpec:
    meta = ObjectMeta(labels=labels or None, annotations=annotations)
    return PodTemplateSpec(metadata=meta, spec=msgspec.Raw(json.dumps(spec).encode()))


def with_cpu(cpu: Any, **more: Any) -> PodTemplateSpec:
    return template({"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}, **more}]}, app="web")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(template({}, app="a"), template({}, app="a", **{HASH: "x"}), True, id="the label of the hash"),
        pytest.param(template({}, app="a"), template({}, app="b"), False, id="labels"),
        pytest.param(template({}, **{HASH: "x"}), template({}), True, id="no other labels"),
        pytest.param(template({}), template({}, annotations={}), True, id="no annotations"),
        pytest.param(template({}), template({}, annotations={"a": "b"}), False, id="annotations"),
        pytest.param(with_cpu("1"), with_cpu("1000m"), True, id="the same quantity"),
        pytest.param(with_cpu("1"), with_cpu("2"), False, id="another quantity"),
        pytest.param(with_cpu("1", args=["1"]), with_cpu("1", args=["1000m"]), False, id="no quantity"),
        pytest.param(with_cpu("1", env=[]), with_cpu("1"), True, id="an empty list"),
        pytest.param(with_cpu("1", tty=None), with_cpu("1"), True, id="null"),
        pytest.param(template({"a": 1, "b": 2}), template({"b": 2, "a": 1}), True, id="the order of fields"),
        pytest.param(
            template({"volumes": [{"emptyDir": {}}]}), template({"volumes": [{}]}), False, id="an empty object counts"
        ),
        pytest.param(
            template({"volumes": [{"emptyDir": {"sizeLimit": "1Gi"}}]}),
            template({"volumes": [{"emptyDir": {"sizeLimit": "1024Mi"}}]}),
            True,
            id="the limit of a volume",
        ),
    ],
)
def test_templates_that_are_the_same(one: PodTemplateSpec, other: PodTemplateSpec, same: bool) -> None:
    assert is_same(one, other) is same
    assert is_same(other, one) is same
    assert (template_hash(one, 0) == template_hash(other, 0)) is same


def test_the_hash_depends_on_collisions_and_is_a_label() -> None:
    one = with_cpu("1")
    assert template_hash(one, 0) != template_hash(one, 1)
    assert 0 < len(template_hash(one, 0)) <= 10


def test_a_new_replica_set() -> None:
    wanted = replace(deployment(min_ready_seconds=7), spec=replace(deployment().spec, template=with_cpu("1")))
    long = replace(wanted, metadata=replace(wanted.metadata, name="w" * 253))
    made = new_replica_set(long, "code", 4, {"a": "b"})
    assert made.metadata.name == "w" * 248 + "-code"
    assert made.metadata.labels == {"app": "web", HASH: "code"} == made.spec.template.metadata.labels
    assert (made.spec.selector.match_labels or {})[HASH] == "code"
    assert made.spec.template.spec == wanted.spec.template.spec
    assert (made.spec.replicas, made.metadata.owner_references[0].uid) == (4, "u")


def test_the_newest_is_the_oldest_of_those_with_the_template() -> None:
    one, other, old = (
        replace(made, spec=replace(made.spec, template=with_cpu(cpu)))
        for made, cpu in ((sized("a", 1, age=1), "1"), (sized("b", 1, age=2), "1"), (sized("c", 1, age=3), "2"))
    )
    wanted = replace(deployment(), spec=replace(deployment().spec, template=with_cpu("1")))
    assert revisions.divide(wanted, [one, other, old]) == (other, (old, one))
    assert revisions.divide(deployment(), [one]) == (None, (one,))


def test_the_numbers_of_the_status() -> None:
    newest = sized("n", 5, 2, ready_replicas=3, terminating_replicas=1)
    old = [sized("a", 8, 7, terminating_replicas=2), sized("b", 0, observed_generation=0)]
    status = status_of(deployment(10, 3, 2, status=DeploymentStatus(collision_count=4)), newest, old, NOW)
    numbers = (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas)
    assert numbers == (13, 5, 10, 9)
    assert (status.unavailable_replicas, status.terminating_replicas, status.collision_count) == (4, 3, 4)
    assert status.observed_generation == 3
    assert [(one.type, one.status, one.reason) for one in status.conditions] == [
        ("Available", "True", "MinimumReplicasAvailable")
    ]
    few = status_of(deployment(12, 3, 2), newest, old, NOW)
    assert [(one.status, one.reason) for one in few.conditions] == [("False", "MinimumReplicasUnavailable")]
    assert status_of(deployment(), sized("n", 1), [], NOW).terminating_replicas is None
    assert status_of(deployment(), newest, old, NOW, terminating=False).terminating_replicas is None


def progress(reason: str, status: str = "True", updated: str = AGO) -> Condition:
    return Condition(
        type="Progressing", status=status, reason=reason, last_update_time=updated, last_transition_time=AGO
    )


def rolled(
    before: DeploymentStatus, newest: ReplicaSet, *old: ReplicaSet, deadline: int | None = 60
) -> tuple[Deployment, DeploymentStatus]:
    wanted = deployment(3, 1, 0, status=before, progress_deadline_seconds=deadline)
    return wanted, rollout_status(wanted, newest, old, status_of(wanted, newest, old, NOW), NOW)


BEFORE = DeploymentStatus(replicas=3, updated_replicas=1, ready_replicas=3, available_replicas=3)


@pytest.mark.parametrize(
    ("known", "newest", "old", "wanted"),
    [
        pytest.param("NewReplicaSetCreated", (2, 1), (2, 2), ("True", "ReplicaSetUpdated", AT_NOW), id="updated"),
        pytest.param("ReplicaSetUpdated", (1, 0), (1, 1), ("True", "ReplicaSetUpdated", AT_NOW), id="fewer are old"),
        pytest.param("ReplicaSetUpdated", (1, 0), (3, 3), ("False", "ProgressDeadlineExceeded", AT_NOW), id="late"),
        pytest.param("ReplicaSetUpdated", (3, 3), (0, 0), ("True", "NewReplicaSetAvailable", AT_NOW), id="complete"),
        pytest.param("NewReplicaSetAvailable", (2, 1), (2, 2), ("True", "ReplicaSetUpdated", AT_NOW), id="begun anew"),
        pytest.param("NewReplicaSetAvailable", (1, 0), (3, 3), ("True", "NewReplicaSetAvailable", AGO), id="not late"),
        pytest.param("NewReplicaSetAvailable", (3, 2), (0, 0), ("True", "NewReplicaSetAvailable", AGO), id="at rest"),
    ],
)
def test_progress(known: str, newest: tuple[int, int], old: tuple[int, int], wanted: tuple[str, str, str]) -> None:
    before = replace(BEFORE, conditions=(progress(known),))
    _, status = rolled(before, sized("n", *newest), sized("a", *old))
    (found,) = (one for one in status.conditions if one.type == "Progressing")
    assert (found.status, found.reason, found.last_update_time) == wanted
    assert found.last_transition_time == (AGO if found.status == "True" else AT_NOW)


def test_without_a_deadline_nothing_is_said_of_progress() -> None:
    before = replace(BEFORE, conditions=(progress("ReplicaSetUpdated"),))
    for deadline in (None, (1 << 31) - 1):
        _, status = rolled(before, sized("n", 2), sized("a", 2), deadline=deadline)
        assert [one.type for one in status.conditions] == ["Available"]


def test_what_keeps_a_replica_set_from_its_pods_is_told() -> None:
    failed = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", last_transition_time=AGO)
    other = replace(failed, reason="FailedDelete")
    _, status = rolled(BEFORE, sized("n", 2, conditions=(failed,)), sized("a", 2, conditions=(other,)))
    (told,) = (one for one in status.conditions if one.type == "ReplicaFailure")
    assert (told.reason, told.last_update_time) == ("FailedCreate", AGO)
    _, status = rolled(status, sized("n", 2), sized("a", 2, conditions=(other,)))
    assert [one.reason for one in status.conditions if one.type == "ReplicaFailure"] == ["FailedDelete"]
    _, status = rolled(status, sized("n", 2), sized("a", 2))
    assert [one for one in status.conditions if one.type == "ReplicaFailure"] == []


@pytest.mark.parametrize(
    ("reason", "updated", "counts", "seconds"),
    [
        pytest.param("ReplicaSetUpdated", "2026-01-01T11:59:30Z", (1, 0), 31.0, id="half of the time is over"),
        pytest.param("ReplicaSetUpdated", "2026-01-01T11:59:00Z", (1, 0), 1.0, id="all of it"),
        pytest.param("ProgressDeadlineExceeded", AGO, (1, 0), None, id="it is told already"),
        pytest.param("ReplicaSetUpdated", AGO, (3, 3), None, id="complete"),
    ],
)
def test_when_to_look_for_progress(reason: str, updated: str, counts: tuple[int, int], seconds: float | None) -> None:
    before = replace(BEFORE, conditions=(progress(reason, updated=updated),))
    wanted = deployment(3, 1, 0, status=before, progress_deadline_seconds=60)
    status = status_of(wanted, sized("n", *counts), [], NOW)
    assert next_look(wanted, status, NOW) == seconds


@pytest.mark.parametrize(
    ("paused", "known", "reason"),
    [
        (True, None, "DeploymentPaused"),
        (True, "ReplicaSetUpdated", "DeploymentPaused"),
        (True, "DeploymentPaused", None),
        (True, "ProgressDeadlineExceeded", None),
        (False, "DeploymentPaused", "DeploymentResumed"),
        (False, "ReplicaSetUpdated", None),
        (False, None, None),
    ],
)
def test_what_is_said_of_a_pause(paused: bool, known: str | None, reason: str | None) -> None:
    status = DeploymentStatus(conditions=(progress(known),) if known else ())
    found = pause_condition(deployment(paused=paused, progress_deadline_seconds=60, status=status), NOW)
    assert (found.reason if found else None) == reason
    assert found is None or found.status == "Unknown"
    assert pause_condition(deployment(paused=paused, status=status), NOW) is None


@pytest.mark.parametrize(
    ("newest", "old", "messages"),
    [
        pytest.param(
            (3, 3),
            (0, 0),
            ["Deployment has minimum availability.", 'ReplicaSet "n" has successfully progressed.'],
            id="complete",
        ),
        pytest.param(
            (2, 0),
            (1, 1),
            ["Deployment does not have minimum availability.", 'ReplicaSet "n" is progressing.'],
            id="progressing",
        ),
        pytest.param(
            (1, 0),
            (3, 3),
            ["Deployment has minimum availability.", 'ReplicaSet "n" has timed out progressing.'],
            id="timed out",
        ),
    ],
)
def test_condition_messages_are_those_of_kubernetes(
    newest: tuple[int, int], old: tuple[int, int], messages: list[str]
) -> None:
    before = replace(BEFORE, conditions=(progress("ReplicaSetUpdated"),))
    _, status = rolled(before, sized("n", *newest), sized("a", *old))
    assert sorted(one.message for one in status.conditions) == messages
