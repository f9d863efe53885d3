"""Decisions of the Deployment controller: sizes, revisions, templates and conditions."""

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


def replica_set(
    name: str,
    replicas: int,
    available: int | None = None,
    *,
    age: int = 0,
    annotated: tuple[int, int] | None = None,
    annotations: Mapping[str, str] | None = None,
    generation: int = 1,
    **status: Any,
) -> ReplicaSet:
    """Return a replica set, `annotated` with desired and maximum replicas; a higher `age` is an older one."""
    notes = dict(annotations or {})
    if annotated is not None:
        notes |= {revisions.DESIRED: str(annotated[0]), revisions.MAXIMUM: str(annotated[1])}
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
        pytest.param(10, "25%", "25%", SurgeLimits(3, 2), id="surge rounds up, unavailable down"),
        pytest.param(2, "0%", "1%", SurgeLimits(0, 1), id="both would be 0"),
        pytest.param(0, 0, 0, SurgeLimits(0, 0), id="no replicas"),
        pytest.param(0, "25%", 3, SurgeLimits(0, 0), id="no replicas, none unavailable"),
        pytest.param(3, 0, 9, SurgeLimits(0, 3), id="no more than replicas"),
        pytest.param(3, None, None, SurgeLimits(0, 1), id="defaults"),
        pytest.param(3, "many", "few", SurgeLimits(0, 1), id="malformed"),
        pytest.param(3, "200%", 0, SurgeLimits(6, 0), id="more than all"),
    ],
)
def test_surge_limits_from_numbers_and_percentages(
    replicas: int, surge: Part, unavailable: Part, limits: SurgeLimits
) -> None:
    assert limits_of(deployment(replicas, surge, unavailable)) == limits
    assert limits_of(deployment(replicas, surge, unavailable, kind="Recreate")) == SurgeLimits(0, 0)


@pytest.mark.parametrize(
    ("newest", "old", "steps"),
    [
        pytest.param(replica_set("n", 12), [], {"n": 10}, id="larger than wanted"),
        pytest.param(replica_set("n", 0), [replica_set("a", 10)], {"n": 3}, id="a surge"),
        pytest.param(
            replica_set("n", 0), [replica_set("a", 4), replica_set("b", 4)], {"n": 5}, id="a surge, and what is missing"
        ),
        pytest.param(replica_set("n", 8), [replica_set("a", 1)], {"n": 10}, id="never more than wanted"),
        pytest.param(
            replica_set("n", 3, 0), [replica_set("a", 10)], {"a": 8}, id="as many fewer as may be unavailable"
        ),
        pytest.param(replica_set("n", 5, 0), [replica_set("a", 8)], {}, id="wait for pods to be available"),
        pytest.param(replica_set("n", 5, 2), [replica_set("a", 8)], {"a": 6}, id="some are available"),
        pytest.param(replica_set("n", 5, 5), [replica_set("a", 8, 7)], {"a": 3}, id="unavailable ones first"),
        pytest.param(
            replica_set("n", 3, 3),
            [replica_set("a", 4, 1, age=1), replica_set("b", 6, 6, age=2)],
            {"a": 1, "b": 4},
            id="unhealthy ones first",
        ),
        pytest.param(
            replica_set("n", 3, 3),
            [replica_set("a", 5, age=1), replica_set("b", 5, age=2)],
            {"b": 0},
            id="the oldest first",
        ),
        pytest.param(
            replica_set("n", 3, 0), [replica_set("a", 10, 4)], {"a": 8}, id="unhealthy ones, up to max unavailable"
        ),
        pytest.param(replica_set("n", 10), [replica_set("a", 0, age=1)], {}, id="complete"),
        pytest.param(replica_set("n", 10), [replica_set("a", 3)], {"a": 0}, id="the last of the old"),
        pytest.param(replica_set("n", 10, 7), [replica_set("a", 3)], {"a": 1}, id="the newest is not available yet"),
        pytest.param(
            replica_set("n", 3, 3),
            [replica_set("a", 10, generation=2)],
            {},
            id="the status of a set is outdated",
        ),
        pytest.param(
            replica_set("n", 3, 3, generation=2), [replica_set("a", 10)], {}, id="the status of the newest is outdated"
        ),
        pytest.param(
            replica_set("n", 0, generation=2),
            [replica_set("a", 13)],
            {"a": 8},
            id="outdated status without pods is ignored",
        ),
        pytest.param(replica_set("n", 0), [replica_set("a", 8, generation=2)], {}, id="outdated status leaves no room"),
        pytest.param(
            replica_set("n", 0), [replica_set("a", 8, there=11)], {"n": 2}, id="pods yet to be deleted take room"
        ),
        pytest.param(
            replica_set("n", 5, 1),
            [replica_set("a", 5, 8), replica_set("b", 3)],
            {"a": 4},
            id="pods beyond the size do not count",
        ),
    ],
)
def test_rolling_update_steps(newest: ReplicaSet, old: list[ReplicaSet], steps: dict[str, int]) -> None:
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
def test_rolling_step_respects_surge_and_unavailable(
    replicas: int, surge: int, unavailable: int, newest: tuple[int, int], old: list[tuple[int, int]]
) -> None:
    wanted = deployment(replicas, surge, unavailable)
    limits = limits_of(wanted)
    sets = [replica_set(str(number), *counts, age=number) for number, counts in enumerate(old)]
    first = replica_set("n", *newest)
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
def test_rolling_update_always_completes(replicas: int, surge: int, unavailable: int, start: int) -> None:
    wanted = deployment(replicas, surge, unavailable)
    newest, old = replica_set("n", 0), replica_set("a", start)
    for _ in range(60):
        steps = rolling(wanted, newest, [old])
        for one, size in steps:
            resized = replica_set(one.metadata.name, size)
            newest, old = (resized, old) if one is newest else (newest, resized)
    assert (newest.spec.replicas, old.spec.replicas) == (replicas, 0)


def test_size_of_new_replica_set() -> None:
    assert newest_size(deployment(10, 3, 2), None, []) == 10
    assert newest_size(deployment(10, 3, 2), None, [replica_set("a", 10)]) == 3
    assert newest_size(deployment(10, 0, 2), None, [replica_set("a", 10)]) == 0
    assert newest_size(deployment(10, kind="Recreate"), None, [replica_set("a", 10)]) == 10


def test_recreate_scales_all_old_sets_to_zero() -> None:
    assert [(one.metadata.name, size) for one, size in none_of([replica_set("a", 3), replica_set("b", 0)])] == [
        ("a", 0)
    ]


@pytest.mark.parametrize(
    ("one", "ended"),
    [
        (replica_set("a", 0), True),
        (replica_set("a", 0, generation=2), False),
        (replica_set("a", 0, there=1), False),
        (replica_set("a", 0, terminating_replicas=1), False),
        (replica_set("a", 0, terminating_replicas=0), True),
    ],
    ids=["none", "an old status", "one too many", "one that is being deleted", "none that is being deleted"],
)
def test_old_sets_have_ended_without_pods(one: ReplicaSet, ended: bool) -> None:
    assert have_ended([replica_set("b", 0), one]) is ended


@pytest.mark.parametrize(
    ("annotated", "replicas", "scaled"),
    [((10, 13), 4, False), ((9, 12), 4, True), ((9, 12), 0, False), (None, 4, False), ((-1, 0), 4, False)],
)
def test_scaling_is_detected_from_desired_annotation(
    annotated: tuple[int, int] | None, replicas: int, scaled: bool
) -> None:
    assert (
        is_scaled(
            deployment(10), [replica_set("a", 10, annotated=(10, 13)), replica_set("b", replicas, annotated=annotated)]
        )
        is scaled
    )


@pytest.mark.parametrize(("others", "scaled"), [(0, True), (1, False)])
def test_empty_sets_do_not_count_as_scaled(others: int, scaled: bool) -> None:
    both = [replica_set("a", 4, annotated=(1, 2)), replica_set("b", others, annotated=(1, 2))]
    assert is_scaled(deployment(5, kind="Recreate"), both) is scaled


@pytest.mark.parametrize(
    ("replicas", "newest", "old", "steps"),
    [
        pytest.param(5, replica_set("n", 10, annotated=(10, 13)), [], {"n": 5}, id="one set"),
        pytest.param(5, None, [replica_set("a", 10, age=1)], {"a": 5}, id="one set, an old one"),
        pytest.param(
            5,
            None,
            [replica_set("a", 0, age=2), replica_set("b", 0, age=1)],
            {"b": 5},
            id="none has pods: the youngest",
        ),
        pytest.param(5, replica_set("n", 0), [replica_set("a", 0, age=1)], {"n": 5}, id="none has pods: the newest"),
        pytest.param(0, replica_set("n", 0), [], {}, id="none has pods, none is wanted"),
        pytest.param(5, None, [], {}, id="no set"),
        pytest.param(5, replica_set("n", 5, annotated=(4, 7)), [], {"n": 5}, id="the right size, without annotation"),
        pytest.param(
            10, replica_set("n", 10, annotated=(10, 13)), [replica_set("a", 2, age=1)], {"a": 0}, id="saturated"
        ),
        pytest.param(
            *(20, replica_set("n", 5, annotated=(10, 13)), [replica_set("a", 8, age=1, annotated=(10, 13))]),
            *({"n": 9, "a": 14},),
            id="up, in proportion",
        ),
        pytest.param(
            *(5, replica_set("n", 5, annotated=(10, 13)), [replica_set("a", 8, age=1, annotated=(10, 13))]),
            *({"n": 3, "a": 5},),
            id="down, in proportion",
        ),
        pytest.param(
            *(0, replica_set("n", 5, annotated=(10, 13)), [replica_set("a", 8, age=1, annotated=(10, 13))]),
            *({"n": 0, "a": 0},),
            id="to none",
        ),
        pytest.param(
            *(12, replica_set("n", 4, annotated=(5, 8)), [replica_set("a", 4, age=1, annotated=(5, 8))]),
            *({"n": 8, "a": 7},),
            id="the remainder goes to the newest of the largest",
        ),
    ],
)
def test_proportional_scaling_steps(
    replicas: int, newest: ReplicaSet | None, old: list[ReplicaSet], steps: dict[str, int]
) -> None:
    found = proportional(deployment(replicas, 3, 2), newest, old)
    assert {one.metadata.name: size for one, size in found} == steps


@given(st.integers(0, 30), st.lists(st.integers(1, 12), min_size=2, max_size=5), st.integers(1, 30), st.integers(0, 4))
def test_proportional_scaling_uses_all_allowed_pods(replicas: int, now: list[int], annotated: int, surge: int) -> None:
    wanted = deployment(replicas, surge, 1)
    sets = [
        replica_set(str(at), size, 0, age=at, annotated=(annotated, annotated + surge)) for at, size in enumerate(now)
    ]
    sizes = [size for _, size in proportional(wanted, sets[0], sets[1:])]
    assert all(size >= 0 for size in sizes)
    most = replicas + limits_of(wanted).surge if replicas else 0
    assert sum(sizes) == most or (sum(sizes) > most and min(sizes) == 0)


def test_recreate_is_never_scaled_proportionally() -> None:
    assert proportional(deployment(5, kind="Recreate"), replica_set("n", 5, 1), [replica_set("a", 8)]) == []


REVISION, HISTORY = revisions.REVISION, revisions.HISTORY


@pytest.mark.parametrize(
    ("old", "known", "wanted"),
    [
        pytest.param(["1", "4"], {}, {REVISION: "5"}, id="adopted"),
        pytest.param([], {REVISION: "1"}, {REVISION: "1"}, id="the only one"),
        pytest.param(["1"], {REVISION: "7"}, {REVISION: "7"}, id="a gap in the revisions"),
        pytest.param(["4"], {REVISION: "2"}, {REVISION: "5", HISTORY: "2"}, id="rolled back"),
        pytest.param(["4"], {REVISION: "3", HISTORY: "1,2"}, {REVISION: "5", HISTORY: "1,2,3"}, id="rolled back twice"),
        pytest.param(["4"], {REVISION: "x"}, {REVISION: "x"}, id="not a number"),
        pytest.param(["3546343826724305832"], {}, {REVISION: "3546343826724305833"}, id="a large one"),
        pytest.param(["9223372036854775808"], {}, {REVISION: "1"}, id="one that is too large"),
        pytest.param(["x"], {REVISION: "0"}, {REVISION: "1", HISTORY: "0"}, id="the others have none"),
    ],
)
def test_revision_and_history_annotations(old: list[str], known: dict[str, str], wanted: dict[str, str]) -> None:
    others = [replica_set(text, 0, annotations={REVISION: text}) for text in old]
    assert revisions.annotations_of_newest(deployment(), others, replica_set("n", 1, annotations=known)) == wanted


def test_long_revision_history_is_truncated() -> None:
    known = {REVISION: "900", HISTORY: ",".join(map(str, range(300, 799)))}
    newest = replica_set("n", 1, annotations=known)
    found = revisions.annotations_of_newest(deployment(), [replica_set("a", 0, annotations={REVISION: "901"})], newest)
    assert len(found[HISTORY]) <= 2000
    assert found[HISTORY].endswith(",798,900")


def test_deployment_annotations_are_copied_to_newest_set() -> None:
    given = {"reason": "why", "kubectl.kubernetes.io/last-applied-configuration": "{}", REVISION: "9", "kept": "new"}
    one = replica_set("n", 1, annotations={"kept": "old", "own": "x"})
    found = revisions.annotations_of_newest(deployment(annotations=given), [], one)
    assert found == {"reason": "why", "kept": "new", "own": "x", REVISION: "1"}
    made = revisions.annotations_of_newest(deployment(4, 3, 0, annotations=given), [], None)
    sizes = {revisions.DESIRED: "4", revisions.MAXIMUM: "7"}
    assert made == {"reason": "why", "kept": "new", REVISION: "1", **sizes}


def test_rollback_restores_template_and_change_cause() -> None:
    then = replica_set("n", 0, annotations={REVISION: "2", "reason": "before", revisions.DESIRED: "4"})
    labels = {"app": "web", HASH: "x"}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=msgspec.Raw(b"{}"))
    then = replace(then, spec=replace(then.spec, template=template))
    now = deployment(annotations={"reason": "after", "more": "y", REVISION: "3"})
    found = revisions.rolled_back(now, then)
    assert found.metadata.annotations == {"reason": "before", REVISION: "3"}
    assert found.spec.template.metadata.labels == {"app": "web"}
    assert revisions.last_but_one([then, replica_set("b", 1, annotations={REVISION: "3"}), replica_set("c", 1)]) == 2


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
def test_equal_templates_have_equal_hashes(one: PodTemplateSpec, other: PodTemplateSpec, same: bool) -> None:
    assert is_same(one, other) is same
    assert is_same(other, one) is same
    assert (template_hash(one, 0) == template_hash(other, 0)) is same


def test_template_hash_depends_on_collision_count() -> None:
    one = with_cpu("1")
    assert template_hash(one, 0) != template_hash(one, 1)
    assert 0 < len(template_hash(one, 0)) <= 10


def test_new_replica_set_has_name_labels_and_owner() -> None:
    wanted = replace(deployment(min_ready_seconds=7), spec=replace(deployment().spec, template=with_cpu("1")))
    long = replace(wanted, metadata=replace(wanted.metadata, name="w" * 253))
    made = new_replica_set(long, "code", 4, {"a": "b"})
    assert made.metadata.name == "w" * 248 + "-code"
    assert made.metadata.labels == {"app": "web", HASH: "code"} == made.spec.template.metadata.labels
    assert (made.spec.selector.match_labels or {})[HASH] == "code"
    assert made.spec.template.spec == wanted.spec.template.spec
    assert (made.spec.replicas, made.metadata.owner_references[0].uid) == (4, "u")


def test_newest_set_is_the_oldest_with_equal_template() -> None:
    one, other, old = (
        replace(made, spec=replace(made.spec, template=with_cpu(cpu)))
        for made, cpu in (
            (replica_set("a", 1, age=1), "1"),
            (replica_set("b", 1, age=2), "1"),
            (replica_set("c", 1, age=3), "2"),
        )
    )
    wanted = replace(deployment(), spec=replace(deployment().spec, template=with_cpu("1")))
    assert revisions.divide(wanted, [one, other, old]) == (other, (old, one))
    assert revisions.divide(deployment(), [one]) == (None, (one,))


def test_status_counts_replicas_of_all_sets() -> None:
    newest = replica_set("n", 5, 2, ready_replicas=3, terminating_replicas=1)
    old = [replica_set("a", 8, 7, terminating_replicas=2), replica_set("b", 0, observed_generation=0)]
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
    assert status_of(deployment(), replica_set("n", 1), [], NOW).terminating_replicas is None
    assert status_of(deployment(), newest, old, NOW, terminating=False).terminating_replicas is None


def progress(reason: str, status: str = "True", updated: str = AGO) -> Condition:
    return Condition(
        type="Progressing", status=status, reason=reason, last_update_time=updated, last_transition_time=AGO
    )


def roll_out(
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
        pytest.param("NewReplicaSetAvailable", (2, 1), (2, 2), ("True", "ReplicaSetUpdated", AT_NOW), id="restarted"),
        pytest.param("NewReplicaSetAvailable", (1, 0), (3, 3), ("True", "NewReplicaSetAvailable", AGO), id="not late"),
        pytest.param("NewReplicaSetAvailable", (3, 2), (0, 0), ("True", "NewReplicaSetAvailable", AGO), id="at rest"),
    ],
)
def test_progressing_condition_by_replica_counts(
    known: str, newest: tuple[int, int], old: tuple[int, int], wanted: tuple[str, str, str]
) -> None:
    before = replace(BEFORE, conditions=(progress(known),))
    _, status = roll_out(before, replica_set("n", *newest), replica_set("a", *old))
    (found,) = (one for one in status.conditions if one.type == "Progressing")
    assert (found.status, found.reason, found.last_update_time) == wanted
    assert found.last_transition_time == (AGO if found.status == "True" else AT_NOW)


def test_without_deadline_there_is_no_progressing_condition() -> None:
    before = replace(BEFORE, conditions=(progress("ReplicaSetUpdated"),))
    for deadline in (None, (1 << 31) - 1):
        _, status = roll_out(before, replica_set("n", 2), replica_set("a", 2), deadline=deadline)
        assert [one.type for one in status.conditions] == ["Available"]


def test_replica_failure_condition_is_copied_from_sets() -> None:
    failed = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", last_transition_time=AGO)
    other = replace(failed, reason="FailedDelete")
    _, status = roll_out(BEFORE, replica_set("n", 2, conditions=(failed,)), replica_set("a", 2, conditions=(other,)))
    (condition,) = (one for one in status.conditions if one.type == "ReplicaFailure")
    assert (condition.reason, condition.last_update_time) == ("FailedCreate", AGO)
    _, status = roll_out(status, replica_set("n", 2), replica_set("a", 2, conditions=(other,)))
    assert [one.reason for one in status.conditions if one.type == "ReplicaFailure"] == ["FailedDelete"]
    _, status = roll_out(status, replica_set("n", 2), replica_set("a", 2))
    assert [one for one in status.conditions if one.type == "ReplicaFailure"] == []


@pytest.mark.parametrize(
    ("reason", "updated", "counts", "seconds"),
    [
        pytest.param("ReplicaSetUpdated", "2026-01-01T11:59:30Z", (1, 0), 31.0, id="half of the time has passed"),
        pytest.param("ReplicaSetUpdated", "2026-01-01T11:59:00Z", (1, 0), 1.0, id="all of it"),
        pytest.param("ProgressDeadlineExceeded", AGO, (1, 0), None, id="already reported"),
        pytest.param("ReplicaSetUpdated", AGO, (3, 3), None, id="complete"),
    ],
)
def test_requeue_for_progress_deadline(
    reason: str, updated: str, counts: tuple[int, int], seconds: float | None
) -> None:
    before = replace(BEFORE, conditions=(progress(reason, updated=updated),))
    wanted = deployment(3, 1, 0, status=before, progress_deadline_seconds=60)
    status = status_of(wanted, replica_set("n", *counts), [], NOW)
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
def test_paused_condition_by_state(paused: bool, known: str | None, reason: str | None) -> None:
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
    _, status = roll_out(before, replica_set("n", *newest), replica_set("a", *old))
    assert sorted(one.message for one in status.conditions) == messages
