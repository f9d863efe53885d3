"""Server-side apply through the verbs: what is stored, returned and rejected."""

import asyncio
import copy
from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.negotiate import ContentNegotiator
from controller_manager.common.api import errors
from controller_manager.common.base.tasks import all_of

Tree = dict[str, Any]

CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
V1, V2 = (f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers" for version in ("v1", "v2"))


def config(data: Any = None, **metadata: Any) -> Tree:
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return tree if data is None else {**tree, "data": data}


async def test_apply_creates_then_updates(apply, owners) -> None:
    """API concepts, Update operations, rule 2: apply is a create when the object does not exist."""
    made = await apply(f"{CONFIGS}/a", config({"k": "1"}))
    assert (made.status, made.tree["data"]) == (201, {"k": "1"})
    changed = await apply(f"{CONFIGS}/a", config({"m": "1"}))
    assert (changed.status, changed.tree["data"]) == (200, {"m": "1"})
    assert owners(changed.tree) == {("one", "Apply", ""): [".data.m"]}


async def test_yaml_can_be_applied(apply) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '1'}\n"
    assert (await apply(f"{CONFIGS}/a", body)).tree["data"] == {"k": "1"}
    flow = b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: '2'}}"
    assert (await apply(f"{CONFIGS}/a", flow)).tree["data"] == {"k": "2"}


async def test_repeated_apply_writes_nothing(api, apply, deployment) -> None:
    made = await apply(f"{DEPLOYMENTS}/d", deployment())
    before = api.store.revision
    again = await apply(f"{DEPLOYMENTS}/d", deployment())
    assert (again.tree, api.store.revision) == (made.tree, before)


@pytest.mark.virtual
@pytest.mark.parametrize("spelling", ["stringData", "1000m", "null"])
async def test_equivalent_configuration_writes_nothing(api, apply, deployment, spelling: str) -> None:
    """Managed fields that differ only in their times stay as they are, as in kube-apiserver."""
    if spelling == "stringData":
        url = "/api/v1/namespaces/default/secrets/a"
        tree = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}}
    else:
        url, tree = f"{DEPLOYMENTS}/d", deployment()
        (container,) = tree["spec"]["template"]["spec"]["containers"]
        container |= {"command": None} if spelling == "null" else {"resources": {"limits": {"cpu": "1000m"}}}
    made = await apply(url, tree)
    await asyncio.sleep(60)
    assert (await apply(url, tree)).tree == made.tree


async def test_defaults_have_no_owner_and_leave_with_their_element(api, apply, deployment, owners) -> None:
    made = (await apply(f"{DEPLOYMENTS}/d", deployment(strategy={"type": "Recreate"}))).tree
    assert '.spec.template.spec.containers[name="c"].imagePullPolicy' not in owners(made)["one", "Apply", ""]
    pod = copy.deepcopy(deployment()["spec"]["template"])
    pod["spec"]["containers"][0]["name"] = "e"
    changed = (await apply(f"{DEPLOYMENTS}/d", deployment(template=pod))).tree
    assert [c["name"] for c in changed["spec"]["template"]["spec"]["containers"]] == ["e"]
    assert changed["spec"]["strategy"]["type"] == "RollingUpdate"


async def test_conflict_changes_nothing_unless_forced(api, apply, deployment, owners) -> None:
    """API concepts, Update operations, rule 5: conflicts are detected, and may be overridden."""
    made = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=1))).tree
    with pytest.raises(errors.Conflict, match=r'1 conflict: conflict with "one": \.spec\.replicas') as caught:
        await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2), "two")
    (cause,) = caught.value.details.causes
    assert (cause.reason, cause.field) == ("FieldManagerConflict", ".spec.replicas")
    assert (await api.get(f"{DEPLOYMENTS}/d")).tree == made
    taken = (await apply(f"{DEPLOYMENTS}/d", deployment(replicas=2), "two", "force=true")).tree
    assert ".spec.replicas" in owners(taken)["two", "Apply", ""]
    assert ".spec.replicas" not in owners(taken)["one", "Apply", ""]


async def test_status_can_be_applied(api, apply, deployment, owners) -> None:
    await apply(f"{DEPLOYMENTS}/d", deployment(replicas=1))
    said = {**deployment(replicas=9), "status": {"replicas": 1, "conditions": [{"type": "A", "status": "True"}]}}
    done = (await apply(f"{DEPLOYMENTS}/d/status", said, "c")).tree
    assert (done["spec"]["replicas"], done["status"]["replicas"]) == (1, 1)
    assert (
        owners(done)["c", "Apply", "status"]
        == [
            ".status.conditions",
            '.status.conditions[type="A"]',
            '.status.conditions[type="A"].status',
            '.status.conditions[type="A"].type',
            ".status.replicas",
        ][1:]
    )
    done = (await apply(f"{DEPLOYMENTS}/d", {**deployment(replicas=1), "status": {"replicas": 7}})).tree
    assert done["status"]["replicas"] == 1
    gone = (await apply(f"{DEPLOYMENTS}/d/status", {**deployment(), "status": {}}, "c")).tree
    assert not gone["status"].get("conditions")


async def test_apply_does_not_create_subresource_of_missing_object(apply, deployment) -> None:
    for part in ("status", "scale"):
        kind = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 1}}
        with pytest.raises(errors.NotFound):
            await apply(f"{DEPLOYMENTS}/d/{part}", kind if part == "scale" else deployment())


async def test_scale_can_be_applied(api, apply, deployment, owners) -> None:
    await apply(f"{DEPLOYMENTS}/d", deployment(replicas=1))
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}}
    with pytest.raises(errors.Conflict, match=r'conflict with "one": \.spec\.replicas'):
        await apply(f"{DEPLOYMENTS}/d/scale", scale, "scaler")
    done = (await apply(f"{DEPLOYMENTS}/d/scale", scale, "scaler", "force=true")).tree
    assert (done["kind"], done["spec"]) == ("Scale", {"replicas": 3})
    found = owners((await api.get(f"{DEPLOYMENTS}/d")).tree)
    assert found["scaler", "Apply", "scale"] == [".spec.replicas"]
    assert ".spec.replicas" not in found["one", "Apply", ""]


async def test_versions_of_a_kind_share_managed_fields(api, apply) -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    spec = {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    tree = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    old = {**tree, "apiVersion": "autoscaling/v1", "spec": {**spec, "targetCPUUtilizationPercentage": 50}}
    new = {**tree, "apiVersion": "autoscaling/v2", "spec": {**spec, "metrics": [metric]}}
    await apply(f"{V1}/a", old)
    other = copy.deepcopy(new)
    other["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] = 80
    with pytest.raises(errors.Conflict, match=r"\.spec\.targetCPUUtilizationPercentage"):
        await apply(f"{V2}/a", other, "two")
    await apply(f"{V2}/a", new, "two")
    left = {**old, "spec": spec}
    assert (await apply(f"{V1}/a", left)).tree["spec"]["targetCPUUtilizationPercentage"] == 50
    moved = (await apply(f"{V2}/a", {**new, "spec": spec}, "two")).tree
    assert {e["manager"]: e["apiVersion"] for e in moved["metadata"]["managedFields"]} == {
        "one": "autoscaling/v1", "two": "autoscaling/v2",
    }  # fmt: skip
    assert metric not in moved["spec"].get("metrics", [])


async def test_managed_fields_are_dropped_from_too_large_object(api, apply) -> None:
    """As in kube-apiserver: managed fields are dropped rather than the write, except by an apply."""
    data = {f"k{number:020}": "v" for number in range(95_000)}
    made = (await api.post(CONFIGS, config(data))).tree
    assert (len(made["data"]), "managedFields" in made["metadata"]) == (95_000, False)
    with pytest.raises(errors.RequestEntityTooLarge):
        await apply(f"{CONFIGS}/b", config(data, name="b"))


async def test_event_groups_share_managed_fields(api, apply, owners) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "R",
        "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c.d/e", "note": "new",
        "reportingInstance": "i", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    }  # fmt: skip
    new, core = (f"{root}/namespaces/default/events/e" for root in ("/apis/events.k8s.io/v1", "/api/v1"))
    await apply(new, event)
    other = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "core"}
    with pytest.raises(errors.Conflict, match=r'^Apply failed with 1 conflict: conflict with "one": \.note$'):
        await apply(core, other, "two")
    assert ".note" in owners((await api.get(core)).tree)["one", "Apply", ""]
    agreed = (await apply(core, {**other, "message": "new"}, "two")).tree
    assert {e["manager"]: e["apiVersion"] for e in agreed["metadata"]["managedFields"]} == {
        "one": "events.k8s.io/v1", "two": "v1",
    }  # fmt: skip
    assert owners(agreed)["two", "Apply", ""] == [".message"]


async def test_cbor_can_be_applied_if_enabled(api, apply) -> None:
    """API concepts, Headers and media types: `application/apply-patch+cbor` when CBOR is enabled."""
    body = cbor2.dumps(config({"k": "1"}))
    with pytest.raises(errors.UnsupportedMediaType):
        await apply(f"{CONFIGS}/a", body, form="apply-patch+cbor")
    api.forms = ContentNegotiator(api.representations, cbor=True)
    assert (await apply(f"{CONFIGS}/a", body, form="apply-patch+cbor")).tree["data"] == {"k": "1"}


async def test_dry_run_shows_outcome_and_writes_nothing(api, apply, owners) -> None:
    """API concepts, Dry-run, rule 1."""
    shown = await apply(f"{CONFIGS}/a", config({"k": "1"}), query="dryRun=All")
    assert (shown.status, list(owners(shown.tree).values())) == (201, [[".data.k"]])
    with pytest.raises(errors.NotFound):
        await api.get(f"{CONFIGS}/a")
    await apply(f"{CONFIGS}/a", config({"k": "1"}))
    before = api.store.revision
    assert (await apply(f"{CONFIGS}/a", config({"k": "2"}), query="dryRun=All")).tree["data"] == {"k": "2"}
    with pytest.raises(errors.Conflict):
        await apply(f"{CONFIGS}/a", config({"k": "2"}), "two", "dryRun=All")
    assert api.store.revision == before


@pytest.mark.parametrize("level", ["Ignore", "Warn", "Strict"])
async def test_field_validation_levels(apply, owners, level: str) -> None:
    """API concepts, Field validation, rule 3: the levels hold for apply too; unknown fields are always refused."""
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '1', k: '2'}\n"
    with pytest.raises(errors.UnknownError, match=r"\.odd: field not declared in schema"):
        await apply(f"{CONFIGS}/a", body + b"odd: 1\n", query=f"fieldValidation={level}")
    if level == "Strict":
        with pytest.raises(errors.BadRequest, match=r'yaml: unmarshal errors:\n  line 4: key "k" already set in map$'):
            await apply(f"{CONFIGS}/a", body, query="fieldValidation=Strict")
        return
    for status in (201, 200):
        done = await apply(f"{CONFIGS}/a", body, query=f"fieldValidation={level}")
        assert (done.status, done.tree["data"], list(owners(done.tree).values())) == (status, {"k": "2"}, [[".data.k"]])
        assert ('line 4: key \\"k\\" already set in map' in done.headers.get("warning", "")) == (level == "Warn")


REFUSED: dict[str, tuple[Any, type[errors.ApiError], str]] = {
    "no object": ([], errors.BadRequest, "not an object"),
    "nothing": (b"", errors.BadRequest, "not an object"),
    "not YAML": (b"{", errors.BadRequest, "not valid YAML"),
    "no version": ({"kind": "ConfigMap"}, errors.BadRequest, "invalid object type: /, Kind=ConfigMap"),
    "no kind": ({"apiVersion": "v1"}, errors.BadRequest, "invalid object type: v1, Kind="),
    "another version": ({**config(), "apiVersion": "v2"}, errors.BadRequest, "invalid object type: v2, Kind=ConfigMap"),
    "another kind": ({**config(), "kind": "Pod"}, errors.BadRequest, "invalid object type: v1, Kind=Pod"),
    "no metadata": ({**config(), "metadata": []}, errors.BadRequest, "metadata"),
    "another name": (config(name="b"), errors.BadRequest, "does not match the name on the URL"),
    "another namespace": (config(namespace="b"), errors.BadRequest, "namespace"),
    "a record": (config(managedFields=[{"manager": "x"}]), errors.BadRequest, "metadata.managedFields must be nil"),
    "a wrong type": (config({"k": 1}), errors.UnknownError, "data.k: expected string"),
    "ambiguous": (config(finalizers=["a/b", "a/b"]), errors.UnknownError, r"\.metadata\.finalizers: duplicate entries"),
    "no time": (config(creationTimestamp="x"), errors.UnknownError, "metadata.creationTimestamp: 'x' is no"),
    "a broken rule": (config({"not a key": "1"}), errors.Invalid, "data"),
}  # fmt: skip


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_configuration_is_rejected(api, apply, name: str, existing: bool) -> None:
    body, refusal, why = REFUSED[name]
    if existing:
        await apply(f"{CONFIGS}/a", config({"k": "1"}))
    before = api.store.revision
    with pytest.raises(refusal, match=why):
        await apply(f"{CONFIGS}/a", body)
    assert api.store.revision == before


async def test_removal_of_all_metadata_is_rejected(api, apply) -> None:
    """As in kube-apiserver, which then finds no name."""
    await api.config("a", labels={})
    await apply(f"{CONFIGS}/a", config(labels={"x": "y"}))
    with pytest.raises(errors.BadRequest, match="its name included"):
        await apply(f"{CONFIGS}/a", {**config(), "metadata": {"finalizers": []}})
    assert (await api.get(f"{CONFIGS}/a")).tree["metadata"]["labels"]["x"] == "y"


async def test_deployment_annotations_change_generation(api, deployment) -> None:
    """Their changes increment the generation, as in kube-apiserver; those of other workloads do not."""
    await api.post(DEPLOYMENTS, deployment())
    kept = (await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"a": "b"}, "annotations": {}}})).tree
    made = (await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"annotations": {"a": "b"}}})).tree
    answer = (await api.patch(f"{DEPLOYMENTS}/d/status", {"metadata": {"annotations": {"a": "c"}}})).tree
    assert [one["metadata"]["generation"] for one in (kept, made, answer)] == [1, 2, 2]


async def test_managed_fields_cannot_be_applied(apply) -> None:
    assert (await apply(f"{CONFIGS}/a", config(managedFields=None))).status == 201
    with pytest.raises(errors.BadRequest, match="managedFields must be nil"):
        await apply(f"{CONFIGS}/a", config(managedFields=[]))


async def test_uid_and_resource_version_are_preconditions(api, apply) -> None:
    """For a missing object, a uid is a conflict and a resource version is ignored."""
    with pytest.raises(errors.Conflict, match="cannot be fulfilled"):
        await apply(f"{CONFIGS}/a", config(uid="x"))
    assert (await apply(f"{CONFIGS}/a", config(resourceVersion="1"))).status == 201
    before = api.store.revision
    with pytest.raises(errors.Conflict, match="cannot be fulfilled"):
        await apply(f"{CONFIGS}/a", config({"k": "2"}, resourceVersion="1"))
    with pytest.raises(errors.Invalid, match=r"metadata\.uid"):
        await apply(f"{CONFIGS}/a", config(uid="x"))
    assert api.store.revision == before


async def test_name_is_needed_only_to_create(api, apply) -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "1"}}
    with pytest.raises(errors.BadRequest, match="name"):
        await apply(f"{CONFIGS}/a", nameless)
    await api.config("a")
    assert (await apply(f"{CONFIGS}/a", nameless, query="force=true")).tree["data"] == {"k": "1"}


async def test_apply_needs_a_manager_and_other_patches_reject_force(api) -> None:
    """As kube-apiserver: `PatchOptions` are refused with 422."""
    media = "application/apply-patch+yaml"
    with pytest.raises(
        errors.Invalid, match=r'^PatchOptions\.meta\.k8s\.io "" is invalid: fieldManager: Required value'
    ):
        await api.ask("PATCH", f"{CONFIGS}/a", config(), content_type=media)
    await api.config("a")
    with pytest.raises(errors.Invalid, match="force: Forbidden: may not be specified for non-apply patch"):
        await api.patch(f"{CONFIGS}/a?force=false", {})


async def test_apply_in_missing_namespace_is_not_found(apply) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        await apply("/api/v1/namespaces/nowhere/configmaps/a", config(namespace="nowhere"))


async def test_two_concurrent_applies_both_succeed(api, apply) -> None:
    """One creates the object, the other changes it."""
    both = ((config({"k": "1"}), "one"), (config({"m": "1"}), "two"))
    done = await all_of(*(apply(f"{CONFIGS}/a", *said) for said in both))
    assert sorted(answer.status for answer in done) == [200, 201]
    assert (await api.get(f"{CONFIGS}/a")).tree["data"] == {"k": "1", "m": "1"}


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["1Gi", "TCP", "c"])
_NAMES = st.sampled_from(["name", "image", "ports", "env", "protocol", "containerPort", "resources", "limits", "x"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=12
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(containers=_VALUES, labels=_VALUES, force=st.booleans())
async def test_any_configuration_is_applied_or_rejected(
    api, deployment, containers: Any, labels: Any, force: bool
) -> None:
    """No body makes the server fail, and a rejected one changes nothing."""
    tree = deployment()
    tree["metadata"]["labels"] = labels
    tree["spec"]["template"]["spec"]["containers"] = containers
    for manager in ("one", "two"):
        before = api.store.revision
        url = f"{DEPLOYMENTS}/d?fieldManager={manager}" + ("&force=true" if force else "")
        try:
            await api.patch(url, tree, "apply-patch+yaml")
        except errors.ApiError as refusal:
            is_expected = refusal.code < 500 or type(refusal) is errors.UnknownError  # of values of another type
        else:
            continue
        assert (is_expected, api.store.revision) == (True, before)


async def test_node_created_by_apply_keeps_status(apply, owners) -> None:
    """As on create. The applier does not own the status, and another apply does not change it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    made = (await apply("/api/v1/nodes/n", node)).tree
    assert made["status"]["capacity"] == made["status"]["allocatable"] == {"cpu": "4"}
    assert owners(made) == {}
    node["status"]["capacity"]["cpu"] = "8"
    assert (await apply("/api/v1/nodes/n", {**node, "spec": {"unschedulable": True}})).tree["status"] == made["status"]


async def test_status_applied_to_new_deployment_is_dropped(apply, deployment, owners) -> None:
    made = (await apply(f"{DEPLOYMENTS}/d", {**deployment(), "status": {"replicas": 3}})).tree
    assert made["status"] == {}
    assert not [path for path in owners(made)["one", "Apply", ""] if path.startswith(".status")]
