"""Decisions of the StatefulSet controller: steps, claims, pods and status."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import STATEFUL_SETS, ControllerRevision, StatefulSet, StatefulSetStatus
from controller_manager.common.api.core import Pod
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.storage import PersistentVolumeClaim
from controller_manager.framework import TerminalError
from controller_manager.framework.controller.history import template_patch
from controllers.stateful_set.claims import new_claims, owners_of_claim
from controllers.stateful_set.controller import pods_left
from controllers.stateful_set.decide import PodVerb, StatefulSetState, by_ordinal, decide, max_unavailable
from controllers.stateful_set.identity import identity_patch, new_pod, ordinal_of
from controllers.stateful_set.revisions import Recorded, is_before_update, template_of
from controllers.stateful_set.status import next_look, status_of

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LONG_AGO, JUST_NOW = "2026-01-01T00:00:00Z", "2026-01-01T11:59:55Z"
NEW, OLD = "web-new", "web-old"
PARALLEL = {"podManagementPolicy": "Parallel"}
CLAIMS = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}


def owner(replicas: int = 3, *, start: int = 0, deleted: bool = False, **spec: Any) -> StatefulSet:
    meta = {"name": "web", "namespace": "d", "uid": "the set", "generation": 7}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    given = {"replicas": replicas, "ordinals": {"start": start}, "template": template, "serviceName": "service"}
    given |= {"selector": {"matchLabels": {"app": "web"}}}
    tree = {"metadata": meta | ({"deletionTimestamp": LONG_AGO} if deleted else {}), "spec": given | spec}
    return StatefulSet.decode(msgspec.json.encode(tree))


def rolling(**values: Any) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": values}}


PHASES = {"P": "Pending", "u": "Running", "R": "Running", "N": "Running", "F": "Failed", "S": "Succeeded"}


def pod(ordinal: int, form: str = "R", *claims: str) -> Pod:
    """`P`ending, `u`nready, `R`eady, ready `N`ow, `F`ailed or `S`ucceeded; with `x` it is being deleted, with `'` it is
    of the former template."""
    name = f"web-{ordinal}"
    labels = {"app": "web", "statefulset.kubernetes.io/pod-name": name}
    labels["controller-revision-hash"] = OLD if "'" in form else NEW
    meta = {"name": name, "namespace": "d", "uid": f"uid {ordinal}", "labels": labels}
    meta |= {"deletionTimestamp": LONG_AGO} if "x" in form else {}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": JUST_NOW if "N" in form else LONG_AGO}
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": f"{one}-{name}"}} for one in claims]
    status = {"phase": PHASES[form[0]], "conditions": [ready] if form[0] in "RN" else []}
    tree = {"metadata": meta, "spec": {"volumes": volumes, "nodeName": "n"}, "status": status}
    return Pod.decode(msgspec.json.encode(tree))


def pods(forms: str, start: int = 0) -> dict[int, Pod]:
    """Return pods from the ordinal `start` on; a dot is a missing pod."""
    return {number: pod(number, form) for number, form in enumerate(forms.split(), start) if form != "."}


SIGNS = {PodVerb.CREATE: "+", PodVerb.DELETE: "-", PodVerb.REPAIR: "~"}


def steps(
    of: StatefulSet, there: Mapping[int, Pod], claims: Sequence[PersistentVolumeClaim] = (), *, limits: bool = False
) -> str:
    """Return the steps in order, with groups separated by a bar."""
    found = {claim.metadata.name: claim for claim in claims}
    rows = decide(StatefulSetState(of, there, found.get, NEW, NOW, limits))
    return " | ".join(" ".join(f"{SIGNS[step.action]}{step.ordinal}" for step in row) for row in rows if row)


@pytest.mark.parametrize(
    ("replicas", "there", "ordered", "parallel"),
    [
        pytest.param(3, "", "+0", "+0 +1 +2", id="none yet"),
        pytest.param(3, "R", "+1", "+1 +2", id="the first is ready"),
        pytest.param(3, "u", "", "+1 +2", id="the first is not ready"),
        pytest.param(3, "P . R", "", "+1", id="the first is pending"),
        pytest.param(3, "R Rx", "", "+2", id="one is being deleted"),
        pytest.param(3, "R R R", "", "", id="all are there"),
        pytest.param(3, "R . R", "+1", "+1", id="one between is missing"),
        pytest.param(3, "R F R", "-1", "-1", id="one has failed"),
        pytest.param(3, "S . R", "-0", "-0 +1", id="one has succeeded"),
        pytest.param(3, "Fx . R", "", "+1", id="one that has ended is being deleted"),
        pytest.param(1, "R R R R", "-3", "-3 -2 -1", id="too many"),
        pytest.param(1, "R R R Rx", "", "-2 -1", id="too many, and one goes already"),
        pytest.param(1, "u R R", "", "-2 -1", id="one to keep is not ready"),
        pytest.param(1, ". R R", "+0", "+0 | -2 -1", id="one to keep is missing"),
        pytest.param(1, "R R u", "-2", "-2 -1", id="the one to go is the only one that is not ready"),
        pytest.param(1, "R u R", "-2", "-2 -1", id="a lower one to go is not ready"),
        pytest.param(1, "R u u", "", "-2 -1", id="two to go are not ready, the lower one first"),
        pytest.param(1, "R u F", "-2", "-2 -1", id="one that has ended never becomes ready"),
        pytest.param(0, "R", "-0", "-0", id="no replicas"),
    ],
)  # fmt: skip
def test_pods_are_created_and_deleted_in_order(replicas: int, there: str, ordered: str, parallel: str) -> None:
    assert steps(owner(replicas), pods(there)) == ordered
    assert steps(owner(replicas, **PARALLEL), pods(there)) == parallel


def test_ordinals_begin_at_start_field() -> None:
    assert steps(owner(2, start=5), {}) == "+5"
    assert steps(owner(2, start=5, **PARALLEL), pods("R R", 4)) == "+6 | -4"


def test_deleted_set_has_no_steps() -> None:
    assert steps(owner(3, deleted=True), {}) == ""
    assert steps(owner(1, deleted=True, **PARALLEL), pods("F R R R'")) == ""


def test_creations_per_step_are_bounded() -> None:
    found = steps(owner(2_000_000_000, **PARALLEL), pods("R R"))
    assert len(found.split()) == 500
    assert found.startswith("+2 +3")


def test_ordered_set_waits_for_available_pods() -> None:
    assert steps(owner(3, minReadySeconds=10), pods("N")) == ""
    assert steps(owner(3, minReadySeconds=5), pods("N")) == "+1"
    assert steps(owner(1, minReadySeconds=10), pods("R N R")) == "-2"


@pytest.mark.parametrize(
    ("strategy", "there", "ordered", "parallel"),
    [
        pytest.param({}, "R' R' R'", "-2", "-2", id="the last first"),
        pytest.param({}, "R' R' R", "-1", "-1", id="the next"),
        pytest.param({}, "R' R' Rx", "", "", id="one is being deleted"),
        pytest.param({}, "R' R' R'x", "", "", id="one of the former template is being deleted"),
        pytest.param({}, "R' R' u", "", "", id="one is not ready"),
        pytest.param({}, "R' R' .", "+2", "+2", id="one is missing"),
        pytest.param({}, "R' R' P'", "", "-2", id="stuck: one of a broken template"),
        pytest.param({}, "R' u' R'", "", "-2", id="another is not ready"),
        pytest.param({}, "R' F' R", "-1", "-1", id="one has ended"),
        pytest.param(rolling(partition=2), "R' R' R'", "-2", "-2", id="above the partition"),
        pytest.param(rolling(partition=2), "R' R' R", "", "", id="below the partition"),
        pytest.param(rolling(partition=9), "R' R' R'", "", "", id="a partition beyond all"),
        pytest.param(rolling(maxUnavailable=2), "R' R' R'", "-2", "-2", id="a limit while the feature is off"),
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, "R' R' R'", "", "", id="on deletion"),
    ],
)  # fmt: skip
def test_update_replaces_one_pod_at_a_time(strategy: Any, there: str, ordered: str, parallel: str) -> None:
    assert steps(owner(**strategy), pods(there)) == ordered
    assert steps(owner(**strategy, **PARALLEL), pods(there)) == parallel


@pytest.mark.parametrize(
    ("strategy", "there", "ordered", "parallel"),
    [
        pytest.param({}, "R' R' R' R'", "-3", "-3", id="default"),
        pytest.param(rolling(maxUnavailable=2), "R' R' R' R'", "-3 -2", "-3 -2", id="two"),
        pytest.param(rolling(maxUnavailable="50%"), "R' R' R' R'", "-3 -2", "-3 -2", id="a half"),
        pytest.param(rolling(maxUnavailable="10%"), "R' R' R' R'", "-3", "-3", id="at least one"),
        pytest.param(rolling(maxUnavailable=9), "R' R' R' R'", "-3 -2 -1 -0", "-3 -2 -1 -0", id="more than there are"),
        pytest.param(rolling(maxUnavailable=3, partition=2), "R' R' R' R'", "-3 -2", "-3 -2", id="with a partition"),
        pytest.param(rolling(maxUnavailable=2), "R' R' R' Rx", "", "-2", id="one is not available"),
        pytest.param(rolling(maxUnavailable=2), "R' R' u P'", "", "", id="as many as allowed are unavailable"),
        pytest.param(rolling(maxUnavailable=2), "R' R' R' .", "+3", "+3 | -2", id="one is missing"),
        pytest.param(rolling(maxUnavailable=2), "R' R' R R'", "-3 -1", "-3 -1", id="one is of the present template"),
    ],
)  # fmt: skip
def test_update_replaces_up_to_max_unavailable_pods(strategy: Any, there: str, ordered: str, parallel: str) -> None:
    assert steps(owner(4, **strategy), pods(there), limits=True) == ordered
    assert steps(owner(4, **strategy, **PARALLEL), pods(there), limits=True) == parallel


@pytest.mark.parametrize(
    ("given", "most"), [(None, 1), (3, 3), ("25%", 2), ("5%", 1), ("100%", 8)]
)  # fmt: skip
def test_max_unavailable_of_update(given: Any, most: int) -> None:
    assert max_unavailable(owner(8, **rolling(maxUnavailable=given))) == most


# Claims.


def claim(ordinal: int = 0, *owners: OwnerReference, deleted: bool = False) -> PersistentVolumeClaim:
    meta = ObjectMeta(name=f"data-web-{ordinal}", namespace="d", owner_references=owners)
    if deleted:
        meta = replace(meta, deletion_timestamp=LONG_AGO)
    return PersistentVolumeClaim(metadata=meta)


def policy(scaled: str, deleted: str) -> dict[str, Any]:
    return {"persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}


def reference(kind: str, name: str, uid: str, *, controller: bool | None = True) -> OwnerReference:
    version = "apps/v1" if kind == "StatefulSet" else "v1"
    blocks = True if controller else None
    return OwnerReference(
        api_version=version, kind=kind, name=name, uid=uid, controller=controller, block_owner_deletion=blocks
    )


SET, POD = reference("StatefulSet", "web", "the set"), reference("Pod", "web-0", "uid 0")
OTHER = reference("Thing", "other", "o")
GUEST = reference("Thing", "guest", "g", controller=None)
FORMER_SET, FORMER_POD = reference("StatefulSet", "web", "former"), reference("Pod", "web-0", "former")
LOOSE = reference("StatefulSet", "web", "the set", controller=None)


@pytest.mark.parametrize(
    ("scaled", "deleted", "before", "staying", "going"),
    [
        pytest.param("Retain", "Retain", (), (), (), id="kept"),
        pytest.param("Retain", "Delete", (), (SET,), (SET,), id="deleted with the set"),
        pytest.param("Delete", "Retain", (), (), (POD,), id="deleted with the pod"),
        pytest.param("Delete", "Delete", (), (SET,), (POD,), id="deleted with either"),
        pytest.param("Retain", "Retain", (SET,), (), (), id="kept from now on"),
        pytest.param("Retain", "Delete", (POD,), (SET,), (SET,), id="the pod is kept"),
        pytest.param("Delete", "Delete", (SET,), (SET,), (POD,), id="the pod is deleted"),
        pytest.param("Retain", "Delete", (GUEST,), (GUEST, SET), (GUEST, SET), id="other owners stay"),
        pytest.param("Retain", "Delete", (LOOSE,), (SET,), (SET,), id="the set does not control it"),
        pytest.param("Delete", "Delete", (OTHER, SET), (OTHER,), (OTHER,), id="another controller"),
        pytest.param("Delete", "Delete", (OTHER,), (OTHER,), (OTHER,), id="another owner only"),
        pytest.param("Retain", "Retain", (OTHER, SET), (OTHER,), (OTHER,), id="another owner, and it is retained"),
        pytest.param("Delete", "Delete", (FORMER_SET,), (FORMER_SET,), (FORMER_SET,), id="of a former set"),
        pytest.param("Retain", "Retain", (FORMER_POD,), (FORMER_POD,), (FORMER_POD,), id="of a former pod"),
    ],
)  # fmt: skip
def test_owners_of_claim_by_retention_policy(scaled: str, deleted: str, before: Any, staying: Any, going: Any) -> None:
    of = owner(**policy(scaled, deleted))
    assert owners_of_claim(of, pod(0), claim(0, *before), stays=True) == staying
    assert owners_of_claim(of, pod(0), claim(0, *before), stays=False) == going


@pytest.mark.parametrize(
    ("spec", "there", "claims", "ordered", "parallel"),
    [
        pytest.param({}, {0: pod(0, "P", "data")}, (), "~0", "~0 +1", id="lost while the pod is pending"),
        pytest.param({}, {0: pod(0, "R", "data")}, (), "+1", "+1", id="lost while the pod runs"),
        pytest.param({}, {0: pod(0, "P", "data")}, (claim(0, deleted=True),), "~0", "~0 +1", id="going"),
        pytest.param({}, {0: pod(0, "R")}, (claim(0),), "~0 +1", "~0 +1", id="the pod lacks the volume"),
        pytest.param(
            policy("Retain", "Delete"), {0: pod(0, "R", "data")}, (claim(0),), "~0 +1", "~0 +1", id="other policy"
        ),
        pytest.param(policy("Delete", "Retain"), {}, (claim(0, FORMER_POD),), "", "+1", id="was deleted with the pod"),
        pytest.param(policy("Retain", "Delete"), {}, (claim(0, FORMER_POD),), "+0", "+0 +1", id="may be used again"),
        pytest.param(
            {"replicas": 0, **policy("Delete", "Retain")},
            {0: pod(0, "R", "data")}, (claim(0),), "~0 | -0", "~0 | -0", id="of a pod to delete",
        ),
    ],
)  # fmt: skip
def test_claims_are_updated_before_pods(spec: Any, there: Any, claims: Any, ordered: str, parallel: str) -> None:
    spec = {"replicas": 2, **CLAIMS, **spec}
    assert steps(owner(**spec), there, claims) == ordered
    assert steps(owner(**spec, **PARALLEL), there, claims) == parallel


def test_claim_is_built_from_its_template() -> None:
    meta = {"name": "data", "labels": {"a": "b", "app": "other"}, "annotations": {"c": "d"}}
    template = {"metadata": meta, "spec": {"storageClassName": "fast", "unknown": {"e": "f"}}}
    of = owner(volumeClaimTemplates=[template], **policy("Retain", "Delete"))
    (made,) = new_claims(of, 4)
    assert (made.metadata.name, made.metadata.namespace) == ("data-web-4", "d")
    assert made.metadata.labels == {"a": "b", "app": "web"}
    assert made.metadata.annotations == {"c": "d"}
    assert made.metadata.owner_references == (SET,)
    assert b'"unknown":{"e":"f"}' in made.raw
    (kept,) = new_claims(owner(volumeClaimTemplates=[template]), 4)
    assert kept.metadata.owner_references == ()


# Identity.


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [
        *(("web-0", 0), ("web-12", 12), ("web-2147483647", 2147483647), ("web-2147483648", None)),
        *(("web", None), ("web-", None), ("web-01", None), ("web-a", None), ("web-a-1", None), ("other-1", None)),
    ],
)
def test_ordinal_of_pod_name(name: str, ordinal: int | None) -> None:
    found = Pod(metadata=ObjectMeta(name=name))
    assert ordinal_of(owner(), found) == ordinal
    assert by_ordinal(owner(), [found]) == ({ordinal: found} if ordinal is not None else {})


def test_new_pod_has_identity_and_claims() -> None:
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}]
    spec = {"containers": [], "volumes": volumes, "hostname": "x", "unknown": 1}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": spec}
    of = owner(template=template, **CLAIMS)
    found = new_pod(of, of.spec.template, 2, NEW)
    assert (found.metadata.name, found.metadata.generate_name) == ("web-2", "web-")
    made = msgspec.json.decode(found.raw)
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-2",
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": NEW,
    }
    assert made["spec"] == {
        "containers": [],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-2"}}, volumes[1]],
        "hostname": "web-2",
        "subdomain": "service",
        "unknown": 1,
    }
    assert not identity_patch(of, Pod.decode(msgspec.json.encode(made)), 2)


def test_identity_patch_adds_missing_labels_and_volumes() -> None:
    found = Pod(metadata=ObjectMeta(name="web-1", labels={"app": "web"}))
    labels = {"statefulset.kubernetes.io/pod-name": "web-1", "apps.kubernetes.io/pod-index": "1"}
    assert identity_patch(owner(), found, 1) == {"metadata": {"labels": labels}}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}
    assert identity_patch(owner(**CLAIMS), pod(1), 1) == {"spec": {"volumes": [volume]}}


# Revisions and status.


@pytest.mark.parametrize(
    ("strategy", "current_replicas", "of_before"),
    [
        pytest.param(rolling(partition=2), 0, [5, 6], id="below the partition"),
        pytest.param(rolling(), 3, [], id="no partition"),
        pytest.param({"updateStrategy": {"type": "RollingUpdate"}}, 1, [5], id="as many as have it"),
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, 3, [], id="on deletion"),
    ],
)
def test_which_pods_use_the_current_revision(strategy: Any, current_replicas: int, of_before: Any) -> None:
    of = replace(owner(3, start=5, **strategy), status=StatefulSetStatus(current_replicas=current_replicas))
    assert [number for number in (5, 6, 7) if is_before_update(of, number)] == of_before


def test_former_template_is_read_from_its_revision() -> None:
    former = owner(template={"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [], "nodeName": "n"}})
    kept = ControllerRevision(metadata=ObjectMeta(name=OLD), data=template_patch(former.spec.template))
    assert template_of(kept) == former.spec.template
    of = owner(**rolling(partition=1))
    recorded = Recorded(OLD, NEW, 0, (kept,))
    assert recorded.template(of, 0) == (former.spec.template, OLD)
    assert recorded.template(of, 1) == (of.spec.template, NEW)
    with pytest.raises(TerminalError):
        template_of(replace(kept, data=msgspec.Raw(b'{"spec":[]}')))


@pytest.mark.parametrize(
    ("there", "replicas", "ready", "available", "current", "updated", "revision"),
    [
        pytest.param("R' R' R", 3, 3, 3, 2, 1, OLD, id="under way"),
        pytest.param("R' R'x R", 3, 3, 3, 1, 1, OLD, id="one is being deleted"),
        pytest.param("R N P", 3, 2, 1, 0, 3, OLD, id="some are not available"),
        pytest.param("R N R", 3, 3, 2, 3, 3, NEW, id="all are of the present template and ready"),
        pytest.param("R R R R", 4, 4, 4, 0, 4, OLD, id="one is too many"),
        pytest.param("", 0, 0, 0, 0, 0, OLD, id="none"),
    ],
)  # fmt: skip
def test_status_counts_pods_by_revision(
    there: str, replicas: int, ready: int, available: int, current: int, updated: int, revision: str
) -> None:
    found = status_of(owner(3, minReadySeconds=10), pods(there).values(), Recorded(OLD, NEW, 2), NOW)
    assert found == StatefulSetStatus(
        replicas=replicas,
        ready_replicas=ready,
        available_replicas=available,
        current_replicas=current,
        updated_replicas=updated,
        current_revision=revision,
        update_revision=NEW,
        collision_count=2,
        observed_generation=7,
    )


def test_on_delete_update_keeps_current_revision() -> None:
    of = owner(1, updateStrategy={"type": "OnDelete"})
    assert status_of(of, [pod(0)], Recorded(OLD, NEW), NOW).current_revision == OLD


def test_requeue_when_pod_becomes_available() -> None:
    assert next_look(owner(minReadySeconds=15), pods("R N P").values(), NOW) == 10.0
    assert next_look(owner(minReadySeconds=15), pods("R P").values(), NOW) is None
    assert next_look(owner(), pods("N").values(), NOW) is None


def test_remaining_pods_after_deletion() -> None:
    one, two, three = pod(0), pod(1), replace(pod(2), spec=replace(pod(2).spec, node_name=""))
    left = {
        one.metadata.name: one.metadata.deletion_timestamp for one in pods_left([one, two, three], [two, three], NOW)
    }
    assert left == {"web-0": None, "web-1": "2026-01-01T12:00:00Z"}


def test_references_match_registered_kind() -> None:
    assert (STATEFUL_SETS.api_version, STATEFUL_SETS.kind) == (SET.api_version, SET.kind)
