"""Recordings of watches are complete, contain no secrets, and can be replayed to controllers."""

import asyncio
import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS
from controller_manager.common.api.core import NAMESPACES, PODS, SECRETS
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.options.parse import FlagSet
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from controller_manager.testing.record import RecordOptions, record
from controller_manager.testing.recording import RecordedResource, Recording, RecordingError, RecordingWriter, redacted
from controller_manager.testing.replay import DryRun, RecordedWrite, Replay, is_unowned
from tests.controller_manager.testing.test_snapshots import deployment

pytestmark = pytest.mark.virtual
WEB = Key("default", "web")
CONFIGS = RecordedResource("", "v1", "configmaps")


def options(path: Path, *flags: str) -> RecordOptions:
    return FlagSet(RecordOptions).parse([f"--output={path}", *flags])[RecordOptions]


def config(name: str, revision: int = 1, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(revision)}, **more}


async def recorded(path: Path) -> Recording:
    """Record how a deployment is created, becomes ready and is scaled."""
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage()
        await cluster.settle()
        recording = asyncio.ensure_future(record(cluster.client, options(path, "--duration=30s")))
        await cluster.sleep(5)
        await cluster.client.create(DEPLOYMENTS, deployment(2))
        await cluster.sleep(15)
        await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": 1}})
        await recording
    return Recording.read(path)


async def test_recording_is_read_in_revision_order(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, datetime(2026, 1, 1, tzinfo=UTC), [CONFIGS], ["secrets"]) as writer:
        writer.add(0.5, "LISTED", CONFIGS, config("a", 4))
        writer.add(2.0, "MODIFIED", CONFIGS, config("a", 9))
        writer.add(1.5, "ADDED", CONFIGS, config("b", 7))
    found = Recording.read(path)
    assert (found.began, found.resources, found.left_out) == (datetime(2026, 1, 1, tzinfo=UTC), [CONFIGS], ["secrets"])
    assert [(row.seconds, row.type, row.key) for row in found.rows] == [
        (0.5, "LISTED", "default/a"),
        (1.5, "ADDED", "default/b"),
        (2.0, "MODIFIED", "default/a"),
    ]


@pytest.mark.parametrize("harm", ["cut", "changed", "other", "unended"])
async def test_incomplete_recording_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path, utc_now(), [CONFIGS], []) as writer:
        writer.add(0.5, "LISTED", CONFIGS, config("a"))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    match harm:
        case "cut":
            path.write_bytes(path.read_bytes()[:-20])
        case "changed":
            path.write_bytes(gzip.compress(b"".join(lines).replace(b'"a"', b'"b"')))
        case "other":
            path.write_bytes(b"something else")
        case "unended":
            path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    with pytest.raises(RecordingError, match=str(path)):
        Recording.read(path)


@pytest.mark.parametrize(
    ("resource", "keep", "left"),
    [("secrets", True, {"p": ""}), ("configmaps", False, {"p": ""}), ("configmaps", True, {"p": "hush"})],
)
async def test_redaction_removes_values_and_keeps_keys(resource: str, keep: bool, left: Any) -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "hush", "other": "stays"}
    tree = {"metadata": {"name": "s", "annotations": applied}, "data": {"p": "hush"}}
    found = redacted(RecordedResource("", "v1", resource), tree, config_map_data=keep)
    assert found["data"] == left
    assert (b"hush" in msgspec.json.encode(found)) == (left == {"p": "hush"})
    assert found["metadata"]["annotations"]["other"] == "stays"


async def test_secrets_are_recorded_on_request_without_values(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        secret = {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"password": "hunter2"}}
        tree = {"apiVersion": "v1", "kind": "Secret", **secret}
        await cluster.client.create(SECRETS, SECRETS.type.decode(msgspec.json.encode(tree)))
        await record(cluster.client, options(tmp_path / "usual", "--duration=1s"))
        usual = Recording.read(tmp_path / "usual")
        assert {"secrets", "leases.coordination.k8s.io", "events"} <= set(usual.left_out)
        assert "secrets" not in {row.resource.name for row in usual.rows}
        await record(cluster.client, options(tmp_path / "named", "--duration=1s", "--resources=secrets"))
        (row,) = Recording.read(tmp_path / "named").rows
        assert row.tree["data"] == {"password": ""}
        with pytest.raises(CannotStart, match="nonsense"):
            await record(cluster.client, options(tmp_path / "none", "--resources=nonsense"))


async def test_namespace_and_labels_select_what_is_recorded(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        await cluster.client.create(NAMESPACES, builders.namespace("other"))
        for namespace in ("default", "other"):
            for name, labels in (("a", {"x": "y"}), ("b", {})):
                await cluster.client.create(PODS, builders.pod(name, namespace=namespace, labels=labels))
        flags = ("--duration=1s", "--namespace=other", "--selector=x=y")
        await record(cluster.client, options(tmp_path / "r", *flags))
        assert [row.key for row in Recording.read(tmp_path / "r").rows] == ["other/a"]


async def test_replay_restores_objects_at_their_times(tmp_path: Path) -> None:
    recording = await recorded(tmp_path / "r")
    async with Cluster() as cluster:
        replay = asyncio.ensure_future(Replay(cluster, recording).run())
        await cluster.sleep(15)
        pods = (await cluster.client.list(PODS)).items
        assert [pod.status.phase for pod in pods] == ["Running", "Running"]
        assert abs((utc_now() - recording.began).total_seconds() - 15) < 1e-3
        (replica_set,) = (await cluster.client.list(REPLICA_SETS)).items
        assert {owner.uid for pod in pods for owner in pod.metadata.owner_references} == {replica_set.metadata.uid}
        await replay
        last = {row.key: row for row in recording.rows if row.resource.name == "pods"}
        kept = {key for key, row in last.items() if row.type != "DELETED"}
        assert {f"default/{pod.metadata.name}" for pod in (await cluster.client.list(PODS)).items} == kept
        assert len(kept) == 1


async def test_user_changes_are_replayed_to_controllers(tmp_path: Path) -> None:
    recording = await recorded(tmp_path / "r")
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage()
        began = asyncio.get_running_loop().time()
        select = {"deployments.apps"}
        users = Replay(
            cluster,
            recording,
            select=lambda row: row.resource.name in select and is_unowned(row),
            specs_only=True,
        )
        await users.run(speed=10)
        assert asyncio.get_running_loop().time() - began < 4
        await cluster.settle()
        found = await cluster.client.get(DEPLOYMENTS, WEB)
        assert (found.spec.replicas, found.status.available_replicas) == (1, 1)
        assert len((await cluster.client.list(PODS)).items) == 1


async def test_dry_run_matches_the_recording(tmp_path: Path) -> None:
    recording = await recorded(tmp_path / "r")
    async with Cluster() as cluster:
        replica = await cluster.manage("--controllers=deployment-controller,replicaset-controller")
        await cluster.settle()
        dry = DryRun(replica)
        dry.begin()
        await Replay(cluster, recording).run()
        found = dry.comparison(recording, {"replicasets.apps", "pods"})
        made = [row.key for row in recording.rows if row.resource.name == "replicasets.apps"]
        assert RecordedWrite("create", "replicasets.apps", "an object of Deployment default/web") in found.both
        assert RecordedWrite("create", "pods", f"an object of ReplicaSet {made[0]}") in found.both
        assert found.ours_alone == []
        wrong = [action for action in found.recorded_alone if action.verb == "create"]
        assert wrong == []


async def test_dry_run_matches_recorded_kube_controller_manager() -> None:
    """Recorded from Kubernetes 1.36 with a hollow node: an image changes, then three replicas become one.

    The choice of the two deleted pods is not compared.
    """
    recording = Recording.read(Path(__file__).parent / "data/rollout.jsonl.gz")
    async with Cluster() as cluster:
        replay = Replay(cluster, recording)
        await replay.begin()
        replica = await cluster.manage("--controllers=deployment-controller,replicaset-controller,endpoints-controller")
        dry = DryRun(replica)
        dry.begin()
        await replay.run()
        found = dry.comparison(recording, {"replicasets.apps", "pods", "endpoints"})
        old, new = "shop/web-889dd49f5", "shop/web-5f8c75b5b8"
        of_nodes = {action for action in found.recorded_alone if action.verb == "update" and "pods" in action.resource}
        assert replay.unserved == set()
        assert {action for action in found.both if action.verb != "delete"} == {
            RecordedWrite("create", "replicasets.apps", "an object of Deployment shop/web"),
            RecordedWrite("create", "pods", f"an object of ReplicaSet {new}"),
            RecordedWrite("update", "endpoints", "shop/web"),
            *(
                RecordedWrite("update", f"replicasets.apps{part}", key)
                for part in ("", "/status")
                for key in (old, new)
            ),
        }
        assert {action.verb for action in {*found.ours_alone, *found.recorded_alone} - of_nodes} == {"delete"}
        deleted = [
            {action.about for action in some if action.verb == "delete"} for some in (found.ours, found.recorded)
        ]
        assert [sum(old in about for about in some) for some in deleted] == [3, 3]
        assert [sum(new in about for about in some) for some in deleted] == [2, 2]
