"""Decisions of the attach-detach controller: steps per volume, relevant node and pod fields, VolumeAttachments."""

import json
import math
from typing import Any

import pytest

from controller_manager.common.api.core import Node, Pod
from controller_manager.common.api.storage import VolumeAttachment
from controller_manager.framework import Key
from controllers.attach_detach.attachments import (
    TIMEOUT,
    attachment_name,
    judge_attachment,
    judge_detachment,
    new_attachment,
)
from controllers.attach_detach.decide import (
    FORCE_AFTER,
    Attach,
    Detach,
    NodeFacts,
    Refuse,
    decide,
    needs_volumes,
    node_facts,
    note_wishes,
    refusal,
)
from controllers.attach_detach.state import (
    LONGEST_PAUSE,
    ActualState,
    AttachableVolume,
    DesiredState,
    OperationResult,
    Verb,
    VolumeOperation,
)
from controllers.shared.volume_specs import CSI, VolumeSpec

Step = Attach | Detach | Refuse
ONE = VolumeSpec("kubernetes.io/csi/d^h", CSI, "v", "d", "h", "v", exclusive=True)
MANY = ONE._replace(exclusive=False)
NOW = 1000.0
QUIET, SILENT = NodeFacts(), NodeFacts(uses=True, ready=False)


def volume_at(spec: VolumeSpec, **places: str) -> AttachableVolume:
    """Return a volume with states per node (`on`, `maybe`, `attaching`, `detaching`) and seconds it is unwanted."""
    volume = AttachableVolume(spec)
    for node, text in places.items():
        state, _, seconds = text.partition(" ")
        if state in ("on", "detaching"):
            volume.attach(node)
        else:
            volume.place(node)
        if state.endswith("ing"):
            volume.begin(node, Verb.ATTACH if state == "attaching" else Verb.DETACH, NOW)
        volume.attachments[node].unwanted = NOW - float(seconds) if seconds else None
    return volume


@pytest.mark.parametrize(
    ("volume", "wanted", "facts", "steps"),
    [
        pytest.param(volume_at(ONE), ["a"], {}, [Attach("a")], id="wanted"),
        pytest.param(volume_at(ONE), [], {}, [], id="no pod"),
        pytest.param(volume_at(ONE, a="on"), ["a"], {}, [], id="attached"),
        pytest.param(volume_at(ONE, a="attaching"), ["a"], {}, [], id="under way"),
        pytest.param(volume_at(ONE, a="maybe"), ["a"], {}, [Attach("a")], id="uncertain"),
        pytest.param(volume_at(ONE), ["a", "b"], {}, [Attach("a")], id="one at a time"),
        pytest.param(volume_at(MANY), ["a", "b"], {}, [Attach("a"), Attach("b")], id="all at once"),
        pytest.param(volume_at(ONE, a="on"), ["a", "b"], {}, [Refuse("b", ("a",))], id="elsewhere"),
        pytest.param(
            volume_at(ONE, a="maybe"), ["a", "b"], {}, [Attach("a")], id="uncertain elsewhere, and wanted there"
        ),
        pytest.param(volume_at(ONE, a="on 0"), ["b"], {}, [Detach("a")], id="detached first"),
        pytest.param(volume_at(ONE, a="detaching"), ["b"], {}, [], id="being detached"),
        pytest.param(volume_at(ONE, a="on 0"), ["b"], {"a": SILENT}, [Refuse("b", ("a",))], id="cannot be detached"),
        pytest.param(volume_at(MANY, a="on 0"), ["b"], {}, [Detach("a"), Attach("b")], id="a shared volume moves"),
        pytest.param(volume_at(ONE, a="on 0"), [], {}, [Detach("a")], id="unwanted"),
        pytest.param(volume_at(ONE, a="maybe 0"), [], {}, [Detach("a")], id="unwanted, maybe there"),
        pytest.param(volume_at(ONE, a="attaching 0"), [], {}, [], id="unwanted before it is there"),
        pytest.param(volume_at(ONE, a="on 0"), [], {"a": NodeFacts(uses=True)}, [], id="used"),
        pytest.param(
            volume_at(ONE, a="on 9999"), [], {"a": NodeFacts(uses=True)}, [], id="used for long by a ready node"
        ),
        pytest.param(volume_at(ONE, a="on 359"), [], {"a": SILENT}, [], id="used by a silent node"),
        pytest.param(
            volume_at(ONE, a="on 360"), [], {"a": SILENT}, [Detach("a", "timeout")], id="used by one silent for long"
        ),
        pytest.param(
            volume_at(ONE, a="on 360"), [], {"a": QUIET}, [Detach("a", "timeout")], id="long unwanted, not used"
        ),
        pytest.param(
            volume_at(ONE, a="on 1"),
            [],
            {"a": NodeFacts(uses=True, out_of_service=True)},
            [Detach("a", "out-of-service")],
            id="out of service",
        ),
    ],
)
def test_decide_for_each_volume_state_returns_steps(
    volume: AttachableVolume, wanted: list[str], facts: dict[str, NodeFacts], steps: list[Step]
) -> None:
    plan = decide(volume, wanted, lambda node: facts.get(node, QUIET), NOW)
    assert list(plan.steps) == steps


def test_decide_without_force_never_detaches_from_silent_nodes() -> None:
    assert decide(volume_at(ONE, a="on 9999"), [], lambda _: SILENT, NOW, force=False) == ((), math.inf)
    steps = decide(volume_at(ONE, a="on 9999"), [], lambda _: QUIET, NOW, force=False).steps
    assert steps == (Detach("a"),)


def test_decide_returns_the_time_of_the_next_check() -> None:
    assert decide(volume_at(ONE, a="on 60"), [], lambda _: SILENT, NOW).again == NOW + FORCE_AFTER - 60
    volume = volume_at(ONE, a="attaching")
    volume.fail("a", NOW)
    assert decide(volume, ["a"], lambda _: QUIET, NOW) == ((), NOW + 0.5)
    assert decide(volume, [], lambda _: QUIET, NOW).steps == (Detach("a"),)
    assert decide(volume, ["a"], lambda _: QUIET, NOW + 0.5).steps == (Attach("a"),)


def test_retry_delay_doubles_to_maximum_and_resets_on_success() -> None:
    volume, pauses = AttachableVolume(MANY), []
    for _ in range(11):
        volume.begin("a", Verb.ATTACH, NOW)
        volume.fail("a", NOW)
        pauses.append(volume.paused("a", Verb.ATTACH, NOW) - NOW)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert volume.paused("b", Verb.ATTACH, NOW) == 0
    assert volume.paused("a", Verb.DETACH, NOW) == 0
    volume.begin("a", Verb.DETACH, NOW)
    volume.fail("a", NOW)
    assert volume.paused("a", Verb.DETACH, NOW) == NOW + 0.5
    volume.attach("a")
    assert volume.paused("a", Verb.DETACH, NOW) == 0


def test_unwanted_since_is_set_when_last_pod_leaves() -> None:
    volume = volume_at(ONE, a="on", b="maybe 5")
    volume.refused.update(("b", "c"))
    note_wishes(volume, ["b"], NOW)
    assert {node: one.unwanted for node, one in volume.attachments.items()} == {"a": NOW, "b": None}
    assert volume.refused == {"b"}
    note_wishes(volume, ["b"], NOW + 5)
    assert volume.attachments["a"].unwanted == NOW


def pod(phase: str = "Running", *, deleted: bool = False, node: str = "a", **statuses: list[dict[str, Any]]) -> Pod:
    meta = {"name": "p", "namespace": "default", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    attachment = {
        kind: [{"name": str(n), "state": state} for n, state in enumerate(of)] for kind, of in statuses.items()
    }
    tree = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase, **attachment}}
    return Pod.decode(json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(), True),
        (pod("Pending"), True),
        (pod(node=""), False),
        (pod("Succeeded"), False),
        (pod("Failed"), False),
        (pod(deleted=True), False),
        (pod(deleted=True, containerStatuses=[{"running": {}}]), True),
        (pod(deleted=True, containerStatuses=[{"terminated": {}}, {"waiting": {}}]), False),
        (pod(deleted=True, containerStatuses=[{"terminated": {}}], initContainerStatuses=[{"running": {}}]), True),
        (pod(deleted=True, ephemeralContainerStatuses=[{"running": {}}]), True),
    ],
)
def test_needs_volumes_by_phase_and_container_states(one: Pod, expected: bool) -> None:
    assert needs_volumes(one) is expected


def test_node_facts_from_readiness_taint_and_usage() -> None:
    def node(ready: str, *taints: str) -> Node:
        spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        return Node.decode(json.dumps({"metadata": {"name": "a"}, "spec": spec, "status": status}).encode())

    assert node_facts(None, uses=True) == NodeFacts(uses=True, ready=False)
    assert node_facts(node("True"), uses=False) == NodeFacts(uses=False)
    assert node_facts(node("Unknown"), uses=True) == NodeFacts(uses=True, ready=False)
    taint = "node.kubernetes.io/out-of-service"
    assert node_facts(node("False", taint), uses=False) == NodeFacts(False, ready=False, out_of_service=True)


def test_multi_attach_errors_name_pods_of_same_namespace_only() -> None:
    def named(name: str, namespace: str = "default") -> Pod:
        meta = {"name": name, "namespace": namespace}
        return Pod.decode(json.dumps({"metadata": meta}).encode())

    me, near, far = named("me"), named("near"), named("far", "elsewhere")
    prefix = 'Multi-Attach error for volume "v" '
    messages = [refusal("v", me, others) for others in ([], [near], [near, far], [far])]
    assert all(text.startswith(prefix) for text in messages)
    assert ["near" in text for text in messages] == [False, True, True, False]
    assert not any("far" in text or "elsewhere" in text for text in messages)


def attachment(uid: str = "1", *, deleted: bool = False, **status: Any) -> VolumeAttachment:
    meta = {"name": "x", "uid": uid, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    return VolumeAttachment.decode(json.dumps({"metadata": meta, "status": status}).encode())


PENDING, DONE = OperationResult(), OperationResult(done=True)


@pytest.mark.parametrize(
    ("shown", "seen", "late", "expected"),
    [
        (None, False, False, PENDING),
        (None, True, False, OperationResult(problem="the VolumeAttachment was deleted")),
        (attachment(), False, False, PENDING),
        (attachment(attached=True), False, False, DONE),
        (attachment(attached=True), False, True, DONE),
        (attachment("of old", attached=True), False, False, PENDING),
        (attachment("of old", attached=True), True, False, OperationResult(problem="the VolumeAttachment was deleted")),
        (
            attachment(attached=True, deleted=True),
            False,
            False,
            OperationResult(problem="the VolumeAttachment is being deleted"),
        ),
        (attachment(attached=False, attachError={"message": "no"}), False, False, OperationResult(problem="no")),
        (attachment(attached=True, attachError={"message": "no"}), False, False, DONE),
    ],
)
def test_attachment_result_from_volume_attachment_status(
    shown: VolumeAttachment | None, seen: bool, late: bool, expected: OperationResult
) -> None:
    operation = VolumeOperation(Verb.ATTACH, NOW, uid="1", seen=seen)
    assert judge_attachment(shown, operation, NOW + (TIMEOUT if late else 1)) == expected


def test_detachment_result_from_volume_attachment_status() -> None:
    operation = VolumeOperation(Verb.DETACH, NOW)
    assert judge_detachment(None, operation, NOW) == DONE
    assert judge_detachment(attachment(attached=True), operation, NOW) == PENDING
    assert judge_detachment(attachment(detachError={"message": "busy"}), operation, NOW) == OperationResult(
        problem="busy"
    )
    late = judge_detachment(attachment(), operation, NOW + TIMEOUT)
    assert "timed out" in late.problem


def test_attachment_name_equals_the_upstream_hash() -> None:
    expected = "csi-340f466bc44236f151cf9ec99a074304032f747e4fb807897b4f4eee3caf9edf"
    assert attachment_name(ONE, "node-1") == expected
    made = new_attachment(ONE, "a")
    assert made.metadata.name == attachment_name(ONE, "a") != attachment_name(ONE, "b")
    assert made.spec.source.persistent_volume_name == "v"
    assert len(made.spec.source.inline_volume_spec) == 0


def test_desired_state_tracks_volumes_by_node() -> None:
    desired, one, other = DesiredState(), Key("default", "p"), Key("default", "q")
    assert desired.want(one, "1", "a", {ONE.name: ONE}) == {ONE.name}
    assert desired.want(one, "1", "a", {ONE.name: ONE}) == set()
    assert desired.want(other, "2", "b", {ONE.name: ONE}) == {ONE.name}
    assert desired.nodes_for(ONE.name) == {"a": {one}, "b": {other}}
    assert desired.spec_of(ONE.name) == ONE
    assert desired.volumes_of(one, "1") == {ONE.name: ONE}
    assert desired.volumes_of(one, "another") == {}
    assert desired.want(one, "3", "b", {ONE.name: ONE}) == {ONE.name}  # another pod of that name, on another node
    assert desired.nodes_for(ONE.name) == {"b": {one, other}}
    assert not desired.is_empty("b")
    assert desired.want(other, "2", "b", {}) == {ONE.name}
    assert desired.release(one) == {ONE.name}
    assert desired.release(one) == set()
    assert (desired.nodes_for(ONE.name), desired.spec_of(ONE.name), desired.is_empty("b")) == ({}, None, True)


def test_volumes_of_unmanaged_nodes_are_only_counted() -> None:
    desired, one = DesiredState(), Key("default", "p")
    assert desired.want(one, "1", "a", {ONE.name: ONE}, managed=False) == set()
    assert (desired.nodes_for(ONE.name), list(desired.uses()), list(desired.volumes())) == ({}, [("a", ONE)], [])
    assert desired.want(one, "1", "a", {ONE.name: ONE}) == {ONE.name}
    assert list(desired.volumes()) == [("a", ONE)]
    assert desired.want(one, "1", "a", {ONE.name: ONE}, managed=False) == {ONE.name}
    assert desired.nodes_for(ONE.name) == {}
    assert desired.release(one) == set()


def test_actual_state_lists_volumes_for_node_status() -> None:
    actual = ActualState()
    assert actual.to_list("a") is None
    actual.found_foreign("example.org/x/y", "a")
    volume = actual.known(ONE)
    actual.will_list("a")
    volume.begin("a", Verb.ATTACH, NOW)
    assert actual.to_list("a") == {"example.org/x/y": ""}
    volume.attach("a", "/dev/sdx")
    assert actual.to_list("a") == {"example.org/x/y": "", ONE.name: "/dev/sdx"}
    assert actual.is_used(ONE.name, "a")
    actual.node_uses("a", [])
    assert not actual.is_used(ONE.name, "a")
    assert [(one.spec, there.node) for one, there in actual.at("a")] == [(ONE, "a")]
    volume.detach("a")
    assert (list(actual.at("a")), actual.nodes()) == ([], [])
    assert actual.to_list("a") == {"example.org/x/y": ""}
    assert actual.foreign() == [("example.org/x/y", "a")]
    actual.recognize("example.org/x/y", "a")
    assert (actual.to_list("a"), actual.foreign()) == ({}, [])
