"""Volumes with the policy Recycle are emptied by a pod for the next claim, in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
)
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.storage import (
    add,
    claim,
    is_gone,
    pod,
    reasons,
    the_claim,
    the_volume,
    volume,
)

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false", "--controllers=persistentvolume-binder,pvc-protection,pv-protection")
CLAIM = Key("default", "c")
PERIOD = 16.0
TIMEOUTS = ("--pv-recycler-minimum-timeout-hostpath=10", "--pv-recycler-timeout-increment-hostpath=40")


def recycled(**source: Any) -> Any:
    return volume(size="3Gi", persistentVolumeReclaimPolicy="Recycle", **source)


async def delete_claim(cluster: Cluster) -> None:
    await cluster.advance(PERIOD)
    assert (await the_claim(cluster)).status.phase == "Bound"
    await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, CLAIM)


@pytest.mark.flag("pv-recycler-minimum-timeout-hostpath")
@pytest.mark.flag("pv-recycler-timeout-increment-hostpath")
@pytest.mark.parametrize(
    ("flags", "seconds"), [((), 90), (TIMEOUTS, 120), (("--pv-recycler-minimum-timeout-hostpath=500",), 500)]
)
async def test_recycler_pod_empties_volume_for_next_claim(flags: tuple[str, ...], seconds: int) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, *flags)
        await add(cluster, recycled(), claim())
        await delete_claim(cluster)
        await cluster.settle()
        made = json.loads((await cluster.client.get(PODS, Key("default", "recycler-for-v"))).raw)
        assert made["spec"]["activeDeadlineSeconds"] == seconds
        assert made["spec"]["volumes"][0]["hostPath"]["path"] == "/tmp/v"
        assert (await the_volume(cluster)).status.phase == "Released"
        async with PodAgent(cluster, ends=lambda _: 0):
            await cluster.client.patch(PODS, Key("default", "recycler-for-v"), {"metadata": {"labels": {"a": "b"}}})
            await cluster.advance(PERIOD)
            free = await the_volume(cluster)
            assert (free.status.phase, free.spec.claim_ref, free.metadata.annotations) == ("Available", None, None)
            assert "VolumeRecycled" in await reasons(cluster, "v")
            assert await is_gone(cluster, PODS, "recycler-for-v")


async def test_failed_recycling_marks_volume_failed_until_retried() -> None:
    code = 1
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: code):
        await cluster.manage(*ON)
        await add(cluster, recycled(), claim())
        await delete_claim(cluster)
        await cluster.sleep(10)
        assert (await the_volume(cluster)).status.phase == "Failed"
        assert "VolumeFailedRecycle" in await reasons(cluster, "v")
        code = 0
        await cluster.advance(60)
        assert (await the_volume(cluster)).status.phase == "Available"


async def test_foreign_pod_with_recycler_name_is_not_trusted() -> None:
    async with Cluster() as cluster, PodAgent(cluster, ends=lambda _: 0):
        await cluster.manage(*ON)
        await add(cluster, recycled(), claim(), pod("recycler-for-v", "other"))
        forged = (await cluster.client.get(PODS, Key("default", "recycler-for-v"))).metadata.uid
        await cluster.advance(PERIOD)
        await delete_claim(cluster)
        uids = set()
        for _ in range(20):
            await cluster.sleep(1)
            uids |= {one.metadata.uid for one in (await cluster.client.list(PODS, "default")).items}
        assert uids - {forged}
        assert (await the_volume(cluster)).status.phase == "Available"


@pytest.mark.flag("pv-recycler-pod-template-filepath-nfs")
@pytest.mark.flag("pv-recycler-minimum-timeout-nfs")
@pytest.mark.flag("pv-recycler-increment-timeout-nfs")
@pytest.mark.flag("pv-recycler-pod-template-filepath-hostpath")
@pytest.mark.parametrize("kind", ["nfs", "hostpath"])
async def test_recycler_pod_uses_template_file(tmp_path: Path, kind: str) -> None:
    spec = {
        "containers": [{"name": "own", "image": "own"}],
        "volumes": [{"name": "scrubbed"}],
        "restartPolicy": "Never",
    }
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps({"metadata": {"namespace": "kube-system"}, "spec": spec}))
    source = {"hostPath": None, "nfs": {"server": "s", "path": "/p"}} if kind == "nfs" else {}
    flags = [f"--pv-recycler-pod-template-filepath-{kind}={file}"]
    if kind == "nfs":
        flags += ["--pv-recycler-minimum-timeout-nfs=1", "--pv-recycler-increment-timeout-nfs=7"]
    async with Cluster() as cluster:
        await cluster.manage(*ON, *flags)
        await add(cluster, recycled(**source), claim())
        await delete_claim(cluster)
        await cluster.settle()
        made = json.loads((await cluster.client.get(PODS, Key("kube-system", "recycler-for-v"))).raw)["spec"]
        assert made["containers"][0]["image"] == "own"
        assert made["activeDeadlineSeconds"] == (21 if kind == "nfs" else 90)
        given = (
            {"nfs": {"server": "s", "path": "/p"}} if kind == "nfs" else {"hostPath": {"path": "/tmp/v", "type": ""}}
        )
        assert made["volumes"][0] == {"name": "scrubbed", **given}
