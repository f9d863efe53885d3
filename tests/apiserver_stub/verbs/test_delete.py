"""Deletion in two phases (API concepts, States and transitions), of single objects and collections."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.verbs.delete import batches
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api import errors
from controller_manager.common.base.tasks import all_of

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def create_with_finalizers(api, *finalizers: str) -> dict[str, Any]:
    made: dict[str, Any] = (await api.post(CONFIGS, {"metadata": {"name": "a", "finalizers": list(finalizers)}})).tree
    return made


async def running_pod(api, name: str = "p", **spec: Any) -> dict[str, Any]:
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], **spec}
    made: dict[str, Any] = (await api.post(PODS, {"metadata": {"name": name}, "spec": spec})).tree
    return made


def job() -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}


async def is_gone(api, url: str) -> bool:
    try:
        await api.get(url)
    except errors.NotFound:
        return True
    return False


async def test_object_without_finalizers_is_deleted_at_once(api) -> None:
    """The Status of a success has no code, and names the resource and the uid."""
    made = (await api.config("a")).tree
    answer = await api.delete(f"{CONFIGS}/a")
    assert answer.status == 200
    assert answer.tree == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }  # fmt: skip
    assert await is_gone(api, f"{CONFIGS}/a")
    with pytest.raises(errors.NotFound):
        await api.delete(f"{CONFIGS}/a")


@pytest.mark.virtual
async def test_finalizer_holds_object_until_removed(api) -> None:
    made = await create_with_finalizers(api, "example.com/a", "example.com/b")
    marked = (await api.delete(f"{CONFIGS}/a")).tree
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    await asyncio.sleep(3)
    assert (await api.delete(f"{CONFIGS}/a")).tree == marked
    with pytest.raises(errors.Invalid, match="finalizers"):
        await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": ["example.com/a", "example.com/c"]}})
    one = (await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": ["example.com/b"]}})).tree
    assert (await api.get(f"{CONFIGS}/a")).tree == one
    one["metadata"]["finalizers"] = []
    last = (await api.put(f"{CONFIGS}/a", one)).tree
    assert last["metadata"]["uid"] == made["metadata"]["uid"]
    assert await is_gone(api, f"{CONFIGS}/a")
    assert (await api.config("a")).tree["metadata"]["uid"] != made["metadata"]["uid"]


@pytest.mark.parametrize(
    ("before", "url", "body", "after"),
    [
        ((), "", {"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ((), "", {"propagationPolicy": "Orphan"}, ["orphan"]),
        ((), "", {"orphanDependents": True}, ["orphan"]),
        ((), "?propagationPolicy=Foreground", None, ["foregroundDeletion"]),
        ((), "?orphanDependents=true", None, ["orphan"]),
        ((), "?propagationPolicy=Orphan", {"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        (("example.com/a",), "", {"propagationPolicy": "Foreground"}, ["example.com/a", "foregroundDeletion"]),
        (("orphan",), "", {"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        (("orphan",), "", None, ["orphan"]),
        (("orphan", "example.com/a"), "", {"propagationPolicy": "Background"}, ["example.com/a"]),
        (("orphan",), "", {"propagationPolicy": "Background"}, None),
        ((), "", {"orphanDependents": False}, None),
    ],
)
async def test_propagation_policy_sets_finalizers(api, before: Any, url: str, body: Any, after: Any) -> None:
    await create_with_finalizers(api, *before)
    answer = (await api.delete(f"{CONFIGS}/a{url}", body)).tree
    if after is None:
        assert await is_gone(api, f"{CONFIGS}/a")
    else:
        assert answer["metadata"]["finalizers"] == after
        assert answer["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("url", "body", "refusal"),
    [
        ("", {"propagationPolicy": "Sideways"}, errors.Invalid),
        ("", {"propagationPolicy": "Orphan", "orphanDependents": True}, errors.Invalid),
        ("", {"gracePeriodSeconds": "soon"}, errors.BadRequest),
        ("", {"kind": "ConfigMap"}, errors.BadRequest),
        ("", {"dryRun": ["Some"]}, errors.Invalid),
        ("", {"apiVersion": "apps/v1"}, errors.BadRequest),
        ("", {"apiVersion": 7}, errors.BadRequest),
        ("", {"gracePeriodSeconds": 1 << 63}, errors.BadRequest),
        ("", {"preconditions": "none"}, errors.BadRequest),
        ("", [], errors.BadRequest),
        ("", b"{", errors.BadRequest),
        ("?gracePeriodSeconds=soon", None, errors.BadRequest),
        ("?dryRun=Some", None, errors.Invalid),
        ("?uid=x", None, errors.Conflict),
        ("", {"preconditions": {"uid": "x"}}, errors.Conflict),
        ("", {"preconditions": {"resourceVersion": "1"}}, errors.Conflict),
    ],
)
async def test_invalid_options_delete_nothing(api, url: str, body: Any, refusal: type) -> None:
    made = (await api.config("a")).tree
    with pytest.raises(refusal):
        await api.delete(f"{CONFIGS}/a{url}", body)
    assert (await api.get(f"{CONFIGS}/a")).tree == made


async def test_matching_preconditions_allow_delete(api) -> None:
    metadata = (await api.config("a")).tree["metadata"]
    presumed = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    await api.delete(f"{CONFIGS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": presumed})
    assert await is_gone(api, f"{CONFIGS}/a")


async def test_all_problems_are_reported_together(api) -> None:
    await api.config("a")
    wrong = {"propagationPolicy": "Sideways", "orphanDependents": True, "dryRun": ["Some"]}
    with pytest.raises(errors.Invalid) as refusal:
        await api.delete(f"{CONFIGS}/a", wrong)
    fields = [cause.field for cause in refusal.value.details.causes]
    assert fields == ["propagationPolicy", "propagationPolicy", "dryRun"]


async def test_body_options_take_precedence_over_query(api) -> None:
    """Options missing in the body are not read from the query, as clients expect; but a dry run in the query counts."""
    await api.config("a")
    assert (await api.delete(f"{CONFIGS}/a?dryRun=All&propagationPolicy=Foreground", {})).tree["kind"] == "Status"
    assert not await is_gone(api, f"{CONFIGS}/a")
    assert (await api.delete(f"{CONFIGS}/a?propagationPolicy=Foreground", {})).tree["kind"] == "Status"
    assert await is_gone(api, f"{CONFIGS}/a")


@pytest.mark.parametrize("version", ["v1", "meta.k8s.io/v1", "batch/v1"])
async def test_delete_options_are_accepted_in_several_groups(api, version: str) -> None:
    await api.post(JOBS, job())
    options = {"kind": "DeleteOptions", "apiVersion": version, "propagationPolicy": "Background"}
    assert (await api.delete(f"{JOBS}/j", options)).tree["status"] == "Success"


async def test_job_orphans_dependents_by_default_with_a_warning(api) -> None:
    """The default of a kind applies if neither the request nor the object has a policy."""
    await api.post(JOBS, job())
    answer = await api.delete(f"{JOBS}/j?dryRun=All")
    assert answer.tree["metadata"]["finalizers"] == ["orphan"]
    assert "propagationPolicy=Background" in answer.headers["warning"]
    for policy in ("Background", "Orphan"):
        assert "warning" not in (await api.delete(f"{JOBS}/j?dryRun=All&propagationPolicy={policy}")).headers


async def test_status_202_only_for_orphan_dependents_false(api) -> None:
    """API concepts, Event endpoints, delete: 200 or 202."""
    await create_with_finalizers(api, "example.com/a")
    assert (await api.delete(f"{CONFIGS}/a")).status == 200
    assert (await api.delete(f"{CONFIGS}/a", {"orphanDependents": False})).status == 202
    await api.patch(f"{CONFIGS}/a", {"metadata": {"finalizers": None}})
    await api.config("a")
    assert (await api.delete(f"{CONFIGS}/a", {"orphanDependents": False})).status == 200


@pytest.mark.virtual
async def test_pod_without_grace_is_deleted_with_deletion_marks(api) -> None:
    """Pending on no node, or forced: deleted at once; watchers see the deletion marks, not only the removal."""
    await running_pod(api, "p")
    forced = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).tree
    await running_pod(api, "q", nodeName="")
    pending = (await api.delete(f"{PODS}/q")).tree
    for gone in (forced, pending):
        assert gone["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
        assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
        assert await is_gone(api, f"{PODS}/{gone['metadata']['name']}")


async def test_second_delete_may_change_propagation_policy(api) -> None:
    await create_with_finalizers(api, "example.com/a")
    for policy, finalizers in (
        ("Foreground", ["example.com/a", "foregroundDeletion"]),
        ("Orphan", ["example.com/a", "orphan"]),
        ("Background", ["example.com/a"]),
    ):
        marked = (await api.delete(f"{CONFIGS}/a", {"propagationPolicy": policy})).tree
        assert marked["metadata"]["finalizers"] == finalizers


async def test_events_ignore_propagation_policy(api) -> None:
    events = "/api/v1/namespaces/default/events"
    await api.post(events, {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}})
    assert (await api.delete(f"{events}/e?propagationPolicy=Foreground")).tree["status"] == "Success"
    assert await is_gone(api, f"{events}/e")


@pytest.mark.parametrize(("url", "body"), [("?dryRun=All", None), ("?dryRun", None), ("", {"dryRun": ["All"]})])
async def test_dry_run_deletes_nothing(api, url: str, body: Any) -> None:
    made = (await api.config("a")).tree
    assert (await api.delete(f"{CONFIGS}/a{url}", body)).tree["status"] == "Success"
    assert (await api.get(f"{CONFIGS}/a")).tree == made


@pytest.mark.virtual
async def test_grace_period_is_respected_and_can_be_shortened(api) -> None:
    await running_pod(api)
    marked = (await api.delete(f"{PODS}/p")).tree["metadata"]
    assert (marked["deletionTimestamp"], marked["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:30Z", 30)
    await asyncio.sleep(3)
    assert (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})).tree["metadata"] == marked
    shorter = (await api.delete(f"{PODS}/p?gracePeriodSeconds=5")).tree["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:05Z", 5)
    assert (await api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})).tree["metadata"]["labels"]["a"] == "b"
    last = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).tree["metadata"]
    assert int(last["resourceVersion"]) > int(shorter["resourceVersion"])
    assert await is_gone(api, f"{PODS}/p")


@pytest.mark.virtual
async def test_repeated_delete_keeps_running_grace_period(api) -> None:
    await running_pod(api)
    marked = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})).tree
    for body in (None, {}, {"propagationPolicy": "Foreground"}, {"gracePeriodSeconds": 61}):
        assert (await api.delete(f"{PODS}/p", body)).tree == marked


@pytest.mark.parametrize("seconds", [1 << 40, 10**15])
async def test_huge_grace_period_is_limited(api, seconds: int) -> None:
    await running_pod(api)
    marked = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": seconds})).tree["metadata"]
    assert marked["deletionTimestamp"] > "2050"
    await running_pod(api, "q", terminationGracePeriodSeconds=min(seconds, (1 << 63) - 1))
    assert (await api.delete(f"{PODS}/q")).tree["metadata"]["deletionGracePeriodSeconds"] <= seconds


async def test_invalid_selector_deletes_nothing(api) -> None:
    await api.config("a")
    with pytest.raises(errors.BadRequest):
        await api.delete(f"{CONFIGS}?fieldSelector=metadata.name=b\\")
    assert not await is_gone(api, f"{CONFIGS}/a")


async def test_namespace_is_deleted_once_finalized(api) -> None:
    url = "/api/v1/namespaces/going"
    await api.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    marked = (await api.delete(url)).tree
    assert (marked["status"]["phase"], marked["spec"]["finalizers"]) == ("Terminating", ["kubernetes"])
    marked["spec"]["finalizers"] = []
    assert (await api.put(url, marked)).tree["spec"]["finalizers"] == ["kubernetes"]
    marked = (await api.get(url)).tree
    marked["spec"]["finalizers"] = []
    await api.put(f"{url}/finalize", marked)
    assert await is_gone(api, url)


async def test_default_namespace_cannot_be_deleted(api) -> None:
    with pytest.raises(errors.Forbidden, match="this namespace may not be deleted"):
        await api.delete("/api/v1/namespaces/default")


async def test_collection_is_deleted_by_selector(api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for n in range(150):
        await api.config(f"a{n}", labels={"x": "1" if n % 2 else "2"})
    await api.config("b", "other", labels={"x": "1"})
    answer = await api.delete(f"{CONFIGS}?labelSelector=x=1")
    assert (answer.status, answer.tree["kind"], len(answer.tree["items"])) == (200, "ConfigMapList", 75)
    left = (await api.get("/api/v1/configmaps?labelSelector=x")).tree["items"]
    assert len(left) == 76
    await api.delete(f"{CONFIGS}?dryRun=All")
    assert len((await api.get(CONFIGS)).tree["items"]) == 75
    await api.delete(CONFIGS)
    assert (await api.get(CONFIGS)).tree["items"] == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([], []), ([10] * 150, [64, 64, 22]), ([1 << 20] * 10, [4, 4, 2]), ([5 << 20, 1, 5 << 20, 1], [1, 2, 1])],
)
def test_large_objects_are_deleted_in_small_batches(sizes: list[int], expected: list[int]) -> None:
    """All objects of a batch are read and written before the loop runs anything else."""
    rows = [Row("configmaps", f"default/{n}", 1, bytes(size)) for n, size in enumerate(sizes)]
    assert [len(batch) for batch in batches(rows, 64)] == expected
    rows = [CorruptRow("configmaps", f"default/{n}", 1, bytes(size)) for n, size in enumerate(sizes)]
    assert sum(map(len, batches(rows, 64))) == len(sizes)


async def test_limit_deletes_collection_in_chunks(api) -> None:
    """API concepts, Event endpoints, deletecollection: `limit` and `continue`."""
    for n in range(5):
        await api.config(f"a{n}")
    token, left = "", []
    for _ in range(3):
        answer = (await api.delete(f"{CONFIGS}?limit=2&continue={token}")).tree
        token = answer["metadata"].get("continue", "")
        left.append((len((await api.get(CONFIGS)).tree["items"]), bool(token)))
    assert left == [(3, True), (1, True), (0, False)]


async def test_deleted_collection_is_returned_as_list(api) -> None:
    """kube-apiserver returns a `ConfigMapList` with the objects before deletion, `metadata.continue` when there is a
    limit, an empty list when nothing is selected, and in any list representation.
    """
    made = [(await api.config(f"a{n}", labels={"x": "1"})).tree for n in range(3)]
    first = (await api.delete(f"{CONFIGS}?limit=2&labelSelector=x", {"propagationPolicy": "Foreground"})).tree
    assert (first["kind"], first["apiVersion"], "status" in first) == ("ConfigMapList", "v1", False)
    assert [item["metadata"] for item in first["items"]] == [one["metadata"] for one in made[:2]]
    assert first["metadata"]["continue"]
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    rest = (await api.delete(f"{CONFIGS}?fieldSelector=metadata.name=a2", accept=partial)).tree
    assert (rest["kind"], [item["metadata"]["name"] for item in rest["items"]]) == ("PartialObjectMetadataList", ["a2"])
    table = (await api.delete(CONFIGS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).tree
    assert (table["kind"], [row["cells"][0] for row in table["rows"]]) == ("Table", ["a0", "a1"])
    none = (await api.delete(f"{CONFIGS}?labelSelector=nothing")).tree
    assert (none["kind"], none["items"]) == ("ConfigMapList", [])


async def test_dry_run_lists_objects_to_delete(api) -> None:
    await api.config("a")
    assert [item["metadata"]["name"] for item in (await api.delete(f"{CONFIGS}?dryRun=All")).tree["items"]] == ["a"]
    assert len((await api.get(CONFIGS)).tree["items"]) == 1


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_failed_precondition_names_the_kind(api, deployment, field: str) -> None:
    """kube-apiserver has the kind in `details.kind`, where other conflicts have the resource."""
    url = "/apis/apps/v1/namespaces/default/deployments"
    await api.post(url, deployment())
    with pytest.raises(errors.Conflict) as refusal:
        await api.delete(f"{url}/d", {"preconditions": {field: "1"}})
    details = refusal.value.details
    assert details is not None
    assert (details.name, details.group, details.kind) == ("d", "apps", "Deployment")
    assert (await api.get(f"{url}/d")).tree["metadata"]["name"] == "d"


async def test_collection_delete_applies_options_to_each_object(api) -> None:
    for n in range(3):
        await api.config(f"a{n}")
    await api.delete(CONFIGS, {"propagationPolicy": "Foreground"})
    items = (await api.get(CONFIGS)).tree["items"]
    assert [item["metadata"]["finalizers"] for item in items] == [["foregroundDeletion"]] * 3
    assert all(item["metadata"]["deletionTimestamp"] for item in items)


async def test_concurrent_collection_deletes_succeed(api) -> None:
    for n in range(40):
        await api.config(f"a{n}")
    together = await all_of(*(api.delete(CONFIGS) for _ in range(4)))
    assert [answer.status for answer in together] == [200] * 4
    assert (await api.get(CONFIGS)).tree["items"] == []


async def test_one_conflict_does_not_stop_other_deletes(api) -> None:
    for n in range(70):
        await api.config(f"a{n}")
    uid = (await api.config("z")).tree["metadata"]["uid"]
    with pytest.raises(errors.Conflict):
        await api.delete(CONFIGS, {"preconditions": {"uid": uid}})
    assert await is_gone(api, f"{CONFIGS}/z")
    assert len((await api.get(CONFIGS)).tree["items"]) == 70
