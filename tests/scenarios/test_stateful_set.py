"""Stateful sets in a cluster whose pods run, in virtual time."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.api.apps import CONTROLLER_REVISIONS, STATEFUL_SETS, ControllerRevision, StatefulSet
from controller_manager.api.core import NAMESPACES, PODS, Pod, is_pod_ready
from controller_manager.api.errors import Forbidden
from controller_manager.api.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from controller_manager.api.resource import Key
from controller_manager.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.api.wire import Request, Response
from controller_manager.controller import controller_of
from controller_manager.controller.history import in_order
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import claim_template, events, label, owned, pods, set_status, stateful_set, template

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=statefulset")
COLLECTING = ("--leader-elect=false", "--controllers=statefulset,garbage-collector-controller")
WEB = Key("default", "web")
PARALLEL = {"podManagementPolicy": "Parallel"}
SECOND, BROKEN = "example.org/app:2", "example.org/app:broken"


class Log:
    """What happened to pods and stateful sets, in order: `+web-0` created, `web-0` ready, `-web-0` gone."""

    def __init__(self, cluster: Cluster) -> None:
        self.pods: list[str] = []
        self.statuses = 0
        self._ready: set[str] = set()
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for one in changes:
            if one.row.resource == PODS.name:
                self._take(one)
            self.statuses += one.row.resource == STATEFUL_SETS.name

    def _take(self, one: Change) -> None:
        pod = Pod.decode(one.row.data)
        name = pod.metadata.name
        if one.deleted:
            self.pods.append(f"-{name}")
            self._ready.discard(name)
        elif not pod.spec.node_name:
            self.pods.append(f"+{name}")
        elif is_pod_ready(pod) and pod.metadata.deletion_timestamp is None:
            if name not in self._ready:
                self.pods.append(name)
            self._ready.add(name)


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": spec})


async def use(cluster: Cluster, image: str) -> None:
    await change(cluster, template=template(image, app="web"))


async def found(cluster: Cluster) -> StatefulSet:
    return await cluster.client.get(STATEFUL_SETS, WEB)


async def numbers(cluster: Cluster) -> tuple[int, ...]:
    """Those of replicas, of ready, of available, of current and of updated ones."""
    status = (await found(cluster)).status
    counts = (status.replicas, status.ready_replicas, status.available_replicas)
    return (*counts, status.current_replicas, status.updated_replicas)


def image_of(pod: Pod) -> str:
    containers = msgspec.json.decode(pod.raw)["spec"]["containers"]
    return str(containers[0]["image"])


async def images(cluster: Cluster) -> dict[str, str]:
    """The version that each pod runs."""
    return {pod.metadata.name: image_of(pod).rpartition(":")[2] for pod in await pods(cluster)}


async def claims(cluster: Cluster) -> dict[str, list[str]]:
    """The claims, and the names of their owners."""
    listed = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
    return {one.metadata.name: [each.name for each in one.metadata.owner_references] for one in listed}


async def revisions(cluster: Cluster) -> list[ControllerRevision]:
    return in_order((await cluster.client.list(CONTROLLER_REVISIONS, "default")).items)


async def release_claims(cluster: Cluster) -> None:
    """Take the finalizers off the claims, as who protects them does."""
    for one in (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items:
        key = Key("default", one.metadata.name)
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, key, {"metadata": {"finalizers": None}})


async def test_pods_come_in_order_and_go_in_the_opposite_one() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        assert log.pods == ["+web-0", "web-0", "+web-1", "web-1", "+web-2", "web-2"]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)
        log.pods.clear()
        await change(cluster, replicas=1)
        await cluster.settle()
        assert log.pods == ["-web-2", "-web-1"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1)
        status = (await found(cluster)).status
        (revision,) = await revisions(cluster)
        assert {status.current_revision, status.update_revision} == {revision.metadata.name}
        assert (status.observed_generation, status.collision_count) == (2, 0)
        written = [reason for _, reason in await events(cluster)]
        assert (written.count("SuccessfulCreate"), written.count("SuccessfulDelete")) == (3, 2)


async def test_parallel_pods_come_and_go_at_once() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set(**PARALLEL))
        await cluster.settle()
        assert sorted(log.pods[:3]) == ["+web-0", "+web-1", "+web-2"]
        log.pods.clear()
        await change(cluster, replicas=0)
        await cluster.sleep(1.5)
        assert sorted(log.pods) == ["-web-0", "-web-1", "-web-2"]
        await cluster.settle()
        assert await numbers(cluster) == (0, 0, 0, 0, 0)


async def test_a_status_is_written_once_for_each_change() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        assert log.statuses == 1 + 4  # the set itself; each pod with the one before it that is ready; the last one
        await change(cluster, replicas=2)
        await cluster.settle()
        assert log.statuses == 5 + 4  # the change; the pod goes; it has ended; it is gone


async def test_a_pod_has_number_name_and_claim_of_its_own() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        spec = {"ordinals": {"start": 5}, "volumeClaimTemplates": [claim_template(labels={"a": "b"})]}
        made = await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        one, _ = await pods(cluster)
        (revision,) = await revisions(cluster)
        assert one.metadata.labels == {
            "app": "web",
            "statefulset.kubernetes.io/pod-name": "web-5",
            "apps.kubernetes.io/pod-index": "5",
            "controller-revision-hash": revision.metadata.name,
        }
        assert (one.spec.hostname, one.spec.subdomain) == ("web-5", "web")
        (volume,) = one.spec.volumes
        assert volume.persistent_volume_claim is not None
        assert (volume.name, volume.persistent_volume_claim.claim_name) == ("data", "data-web-5")
        assert b'"env":[{"name":"A","value":"b"}]' in one.raw
        reference = controller_of(one)
        assert reference is not None
        assert (reference.kind, reference.uid) == ("StatefulSet", made.metadata.uid)
        assert await claims(cluster) == {"data-web-5": [], "data-web-6": []}
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-5"))
        assert claim.metadata.labels == {"a": "b", "app": "web"}


async def test_numbers_may_begin_elsewhere_later() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=3))
        await cluster.settle()
        await change(cluster, ordinals={"start": 2})
        await cluster.settle()
        assert sorted(await images(cluster)) == ["web-2", "web-3", "web-4"]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)


async def test_an_update_goes_from_the_last_pod_to_the_first() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        log = Log(cluster)
        before = (await found(cluster)).status.current_revision
        await use(cluster, SECOND)
        await cluster.sleep(3)
        status = (await found(cluster)).status
        assert (status.current_revision, status.update_revision != before) == (before, True)
        assert (status.current_replicas, status.updated_replicas) == (1, 1)
        await cluster.settle()
        rounds = (("-web-2", "+web-2", "web-2"), ("-web-1", "+web-1", "web-1"), ("-web-0", "+web-0", "web-0"))
        assert log.pods == [step for one in rounds for step in one]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)
        status = (await found(cluster)).status
        assert status.current_revision == status.update_revision != before
        assert set((await images(cluster)).values()) == {"2"}


async def test_a_partition_holds_pods_back() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(updateStrategy=strategy))
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}
        assert await numbers(cluster) == (3, 3, 3, 2, 1)
        for name in ("web-1", "web-2"):  # they come again of what they were of
            await cluster.client.delete(PODS, Key("default", name))
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}
        await change(cluster, updateStrategy={"rollingUpdate": {"partition": 0}})
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}


async def test_an_update_on_deletion_waits_for_that() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(updateStrategy={"type": "OnDelete"}))
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"1"}
        await cluster.client.delete(PODS, Key("default", "web-1"))
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "2", "web-2": "1"}
        assert await numbers(cluster) == (3, 3, 3, 2, 1)


@pytest.mark.parametrize("limit", [2, "50%"])
async def test_an_update_takes_as_many_pods_as_may_be_unavailable(limit: Any) -> None:
    async with Cluster(("--feature-gates=MaxUnavailableStatefulSet=true",)) as cluster, PodAgent(cluster):
        replica = await cluster.manage(
            *FLAGS, "--feature-gates=MaxUnavailableStatefulSet=true", "--authorization-always-allow-paths=/metrics"
        )
        strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=4, updateStrategy=strategy, **PARALLEL))
        await cluster.settle()
        log = Log(cluster)
        await use(cluster, SECOND)
        await cluster.sleep(1.5)
        assert sorted(log.pods[:2]) == ["-web-2", "-web-3"]
        assert await gauge(replica, "unavailable_replicas") == ["2"]
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}
        assert (await gauge(replica, "max_unavailable"), await gauge(replica, "unavailable_replicas")) == (["2"], ["0"])
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Orphan")
        await cluster.client.patch(STATEFUL_SETS, WEB, {"metadata": {"finalizers": None}})
        await cluster.settle()
        assert await gauge(replica, "max_unavailable") == []


async def gauge(replica: Any, name: str) -> list[str]:
    """The values of a gauge of the controller."""
    body = (await replica.manager.pages.handle(Request("GET", "/metrics"))).body
    labels = 'pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="default"'
    start = f"statefulset_controller_statefulset_{name}{{{labels}}} "
    lines = [
        line
        for line in bytes(body).decode().splitlines()
        if line.startswith(f"statefulset_controller_statefulset_{name}{{")
    ]
    assert all(sorted(line[line.index("{") + 1 : line.index("}")].split(",")) == labels.split(",") for line in lines), (
        start
    )
    return [line.rpartition(" ")[2].removesuffix(".0") for line in lines]


async def test_an_update_that_is_stuck_goes_on_once_its_broken_pod_is_deleted() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: image_of(pod) != BROKEN):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        await use(cluster, BROKEN)
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "broken"}
        await use(cluster, SECOND)
        await cluster.advance(600)
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "broken"}
        await cluster.client.delete(PODS, Key("default", "web-2"))
        await cluster.advance(10)
        assert set((await images(cluster)).values()) == {"2"}


async def test_a_parallel_update_that_is_stuck_is_repaired_by_another_template() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: image_of(pod) != BROKEN):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(**PARALLEL))
        await cluster.settle()
        await use(cluster, BROKEN)
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}


async def test_a_template_that_comes_again_has_the_revision_of_before() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1))
        await cluster.settle()
        (first,) = await revisions(cluster)
        await use(cluster, SECOND)
        await cluster.settle()
        await cluster.client.patch(STATEFUL_SETS, WEB, msgspec.json.decode(first.data))  # as kubectl rollout undo
        await cluster.settle()
        one, two = await revisions(cluster)
        assert (two.metadata.name, one.revision, two.revision) == (first.metadata.name, 2, 3)
        assert await images(cluster) == {"web-0": "1"}


async def test_as_many_revisions_are_kept_as_the_limit_says() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1, revisionHistoryLimit=1))
        await cluster.settle()
        for number in range(2, 6):
            await use(cluster, f"example.org/app:{number}")
            await cluster.settle()
        assert [one.revision for one in await revisions(cluster)] == [4, 5]


async def test_a_name_of_a_revision_that_is_taken_counts_as_a_collision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1))
        await cluster.settle()
        (first,) = await revisions(cluster)
        await replica.stop()
        key = Key("default", first.metadata.name)
        await cluster.client.delete(CONTROLLER_REVISIONS, key)
        meta = replace(first.metadata, owner_references=(), labels=None, uid="", resource_version="")
        other = ControllerRevision(metadata=meta, data=msgspec.Raw(b'{"spec":{}}'), revision=7)
        await cluster.client.create(CONTROLLER_REVISIONS, other)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        status = (await found(cluster)).status
        assert status.collision_count == 1
        assert status.update_revision != first.metadata.name


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_pod_that_has_ended_is_made_anew(phase: str) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        before = {pod.metadata.name: pod.metadata.uid for pod in await pods(cluster)}
        one = next(pod for pod in await pods(cluster) if pod.metadata.name == "web-1")
        await set_status(cluster, one, phase=phase)
        await cluster.settle()
        after = {pod.metadata.name: pod.metadata.uid for pod in await pods(cluster)}
        assert {name for name in before if before[name] != after[name]} == {"web-1"}
        assert await numbers(cluster) == (3, 3, 3, 3, 3)


async def test_who_comes_next_waits_until_a_pod_is_available() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, minReadySeconds=30))
        await cluster.sleep(20)
        assert await numbers(cluster) == (1, 1, 0, 1, 1)
        await cluster.sleep(20)
        assert await numbers(cluster) == (2, 2, 1, 2, 2)
        await cluster.advance(40)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


async def test_pods_are_adopted_by_name_and_labels_and_released() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        spec = {"volumeClaimTemplates": [claim_template()]}
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        await replica.stop()
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Orphan")
        await cluster.client.patch(STATEFUL_SETS, WEB, {"metadata": {"finalizers": None}})
        for name in ("web-0", "web-1"):
            await cluster.client.patch(PODS, Key("default", name), {"metadata": {"ownerReferences": None}})
        marks = {"statefulset.kubernetes.io/pod-name": None, "apps.kubernetes.io/pod-index": None}
        await label(cluster, builders.pod("web-1"), **marks)
        await cluster.client.create(PODS, builders.pod("web-x", labels={"app": "web"}))
        await cluster.manage(*FLAGS, strict=False)
        again = await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        found_pods = {pod.metadata.name: pod for pod in await pods(cluster)}
        owners = {name: controller_of(pod) for name, pod in found_pods.items()}
        assert {name: one.uid if one else "" for name, one in owners.items()} == {
            "web-0": again.metadata.uid,
            "web-1": again.metadata.uid,
            "web-x": "",
        }
        assert (found_pods["web-1"].metadata.labels or {})["statefulset.kubernetes.io/pod-name"] == "web-1"
        assert "SuccessfulUpdate" in [reason for _, reason in await events(cluster)]
        await label(cluster, found_pods["web-1"], app="else")
        await cluster.sleep(5)
        assert len(await owned(cluster)) == 1  # its name is taken by the pod that was released


async def test_a_pod_of_somebody_else_has_the_name() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS, strict=False)
        await cluster.client.create(PODS, builders.pod("web-0", labels={"app": "else"}))
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2))
        await cluster.sleep(10)
        assert await owned(cluster) == []
        await cluster.client.delete(PODS, Key("default", "web-0"))
        await cluster.advance(60)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


@pytest.mark.parametrize(
    ("scaled", "deleted", "after_scaling", "after_deletion"),
    [
        ("Retain", "Retain", 3, 3),
        ("Retain", "Delete", 3, 0),
        ("Delete", "Retain", 1, 1),
        ("Delete", "Delete", 1, 0),
    ],
)
async def test_claims_go_as_the_policy_says(scaled: str, deleted: str, after_scaling: int, after_deletion: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}
        spec = {"volumeClaimTemplates": [claim_template()], **policy}
        await cluster.client.create(STATEFUL_SETS, stateful_set(**spec))
        await cluster.settle()
        owners = ["web"] if deleted == "Delete" else []
        assert await claims(cluster) == {f"data-web-{number}": owners for number in range(3)}
        await release_claims(cluster)
        await change(cluster, replicas=1)
        await cluster.advance(30)
        assert len(await claims(cluster)) == after_scaling
        await cluster.client.delete(STATEFUL_SETS, WEB)
        await cluster.advance(30)
        assert await pods(cluster) == []
        assert len(await claims(cluster)) == after_deletion


async def test_another_policy_changes_the_owners_of_claims() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, volumeClaimTemplates=[claim_template()]))
        await cluster.settle()
        for deleted, owners in (("Delete", ["web"]), ("Retain", [])):
            await change(cluster, persistentVolumeClaimRetentionPolicy={"whenDeleted": deleted})
            await cluster.settle()
            assert await claims(cluster) == {"data-web-0": owners, "data-web-1": owners}
        written = [reason for _, reason in await events(cluster)]
        assert written.count("SuccessfulUpdate") == 2  # one for each pod, which counts


async def test_a_claim_of_a_pod_of_before_is_waited_for() -> None:
    """A set that was scaled down is scaled up again, while a claim has yet to follow its pod."""
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING, strict=False)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
        await cluster.client.create(
            STATEFUL_SETS, stateful_set(replicas=2, volumeClaimTemplates=[claim_template()], **policy)
        )
        await cluster.settle()
        before = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-1"))
        await change(cluster, replicas=1)
        await cluster.advance(30)
        await change(cluster, replicas=2)
        await cluster.advance(30)
        assert len(await owned(cluster)) == 1
        await release_claims(cluster)
        await cluster.settle()
        assert await numbers(cluster) == (2, 2, 2, 2, 2)
        after = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-1"))
        assert after.metadata.uid != before.metadata.uid


async def test_a_pending_pod_gets_a_claim_that_was_lost() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda _: False):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(volumeClaimTemplates=[claim_template()]))
        await cluster.settle()
        await release_claims(cluster)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-0"))
        await cluster.settle()
        assert await claims(cluster) == {"data-web-0": []}


async def test_a_claim_that_somebody_else_controls_is_left_to_them() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        theirs = {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u", "controller": True}
        meta = {"name": "data-web-0", "namespace": "default", "ownerReferences": [theirs]}
        tree = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim_template()["spec"]}
        claim = PersistentVolumeClaim.decode(msgspec.json.encode(tree))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(volumeClaimTemplates=[claim_template()], **policy))
        await cluster.settle()
        assert await claims(cluster) == {"data-web-0": ["t"], "data-web-1": ["web"], "data-web-2": ["web"]}


async def test_what_the_server_refuses_is_told_and_tried_again() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        answer = Response(403, {}, Forbidden("the quota is used up").status().encode())
        asked = "/api/v1/namespaces/default/pods"
        replica.network.intercept(lambda it: answer if (it.method, it.path) == ("POST", asked) else None)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2))
        await cluster.sleep(2)
        assert ("Warning", "FailedCreate") in await events(cluster)
        status = (await found(cluster)).status
        assert (status.observed_generation, status.replicas) == (1, 0)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


async def test_a_set_in_a_namespace_that_ends_creates_nothing() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage("--leader-elect=false", "--controllers=statefulset,namespace,garbage-collector-controller")
        await cluster.client.create(NAMESPACES, builders.namespace("short"))
        made = stateful_set(volumeClaimTemplates=[claim_template()])
        await cluster.client.create(STATEFUL_SETS, replace(made, metadata=replace(made.metadata, namespace="short")))
        await cluster.sleep(1.5)
        await cluster.client.delete(NAMESPACES, Key("", "short"))
        await cluster.sleep(5)
        assert [event for event in await events(cluster) if event[0] == "Warning"] == []
        assert (await cluster.client.list(PODS, "short")).items == []


async def test_a_set_that_is_deleted_takes_its_pods_along() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Foreground")
        await cluster.settle()
        assert (await pods(cluster), await revisions(cluster)) == ([], [])
        assert (await cluster.client.list(STATEFUL_SETS, "default")).items == []


async def test_a_budget_counts_its_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage("--leader-elect=false", "--controllers=statefulset,disruption")
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        meta = {"name": "web", "namespace": "default"}
        kind = POD_DISRUPTION_BUDGETS
        tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": budget}
        await cluster.client.create(kind, PodDisruptionBudget.decode(msgspec.json.encode(tree)))
        await cluster.advance(60)
        status = (await cluster.client.get(kind, WEB)).status
        assert (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (3, 3, 1)


async def test_a_new_leader_goes_on_where_the_one_before_was() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=4))
        await cluster.sleep(1.5)
        await replica.kill()
        log = Log(cluster)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert await numbers(cluster) == (4, 4, 4, 4, 4)
        assert sum(one.startswith("-") for one in log.pods) == 0
        before = cluster.api.store.revision
        await cluster.advance(60)
        assert cluster.api.store.revision == before


@pytest.mark.flag("concurrent-statefulset-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_so_many_sets_are_worked_on_at_once(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=statefulset", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-statefulset-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(STATEFUL_SETS, stateful_set(f"web-{number}"))
        assert await most_in_work(cluster, replica, "statefulset-controller") == workers
