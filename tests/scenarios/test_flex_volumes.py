"""Volumes of FlexVolume drivers, which are real programs, in a whole cluster, in virtual time."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller_manager.common.api.core import EVENTS, NODES, PODS
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controller_manager.testing.replica import Replica
from controllers.attach_detach import SPECS
from controllers.attach_detach.attachments import TIMEOUT
from controllers.attach_detach.flex_drivers import AT_ONCE, PERIOD
from tests.scenarios.test_attach_detach import DONE, FAILED, FAMILY, ON, delete_pod, events_of
from tests.scenarios.volumes import UNPROTECTED, add_node, bind, listed, of_claim, pod, samples

pytestmark = [pytest.mark.virtual, pytest.mark.flag("flex-volume-plugin-dir")]
NAME = "example.org/disks"
SOURCE = {"flexVolume": {"driver": NAME, "fsType": "ext4", "options": {"size": "big", "password": "swordfish"}}}
SUCCESS = {"status": "Success"}
ATTACHED = {"status": "Success", "device": "/dev/sdx"}
NOT_SUPPORTED = {"status": "Not supported"}
SCRIPT = """#!/bin/sh
cd {home}
for word; do echo "$word" >>calls; done; echo . >>calls
[ -e "$1.hangs" ] && exec sleep 1000
[ -e "$1" ] && exec cat "$1"
echo '{{"status": "Not supported"}}'
"""


class Driver:
    """A driver program with configured answers, which records its calls."""

    def __init__(self, folder: Path, name: str = NAME, **answers: dict[str, Any]) -> None:
        self.folder, self.home = folder, folder / f".{name.replace('/', '~')}"
        self.program = folder / name.replace("/", "~") / name.rpartition("/")[2]
        self.home.mkdir(parents=True)
        for command, answer in {"init": SUCCESS, **answers}.items():
            self.answers(command, answer)
        self.install()

    def install(self) -> None:
        self.program.parent.mkdir(exist_ok=True)
        self.program.write_text(SCRIPT.format(home=self.home))
        self.program.chmod(0o755)

    def answers(self, command: str, answer: dict[str, Any]) -> None:
        (self.home / command).write_text(json.dumps(answer))

    def hangs(self, command: str) -> None:
        (self.home / f"{command}.hangs").touch()

    def calls(self) -> list[list[str]]:
        """Return the calls so far, without `init`."""
        found = (self.home / "calls").read_text().split(".\n") if (self.home / "calls").exists() else []
        return [call.splitlines() for call in found if call not in ("", "init\n")]


@asynccontextmanager
async def world(folder: Path, *flags: str) -> AsyncIterator[tuple[Cluster, Replica]]:
    """Start a cluster with two nodes and a manager that finds drivers in a folder."""
    async with Cluster((UNPROTECTED,)) as cluster:
        for node in ("a", "b"):
            await add_node(cluster, node)
        yield cluster, await cluster.manage(*ON, f"--flex-volume-plugin-dir={folder}", *flags, specs=SPECS)


async def paths(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the attached volumes of a node's status, with their devices."""
    status = (await cluster.client.get(NODES, Key("", node))).status
    return {one.name: one.device_path for one in status.volumes_attached}


async def use(cluster: Cluster, node: str, *names: str) -> None:
    change = {"status": {"volumesInUse": list(names) or None}}
    await cluster.client.patch(NODES, Key("", node), change, subresource="status")


async def test_volume_is_attached_listed_and_detached_after_unmount(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach=ATTACHED, detach=SUCCESS, getvolumename=SUCCESS)
    async with world(tmp_path) as (cluster, replica):
        await bind(cluster, "v", source=SOURCE)
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        assert await paths(cluster, "a") == {f"{NAME}/v": "/dev/sdx"}
        assert await events_of(cluster, "p") == [DONE]
        options = {
            "kubernetes.io/fsType": "ext4",
            "kubernetes.io/pvOrVolumeName": "v",
            "kubernetes.io/readwrite": "rw",
            "password": "swordfish",
            "size": "big",
        }
        named, attach = driver.calls()
        assert (attach[0], json.loads(attach[1]), attach[2:]) == ("attach", options, ["a"])
        assert (named[0], json.loads(named[1])) == ("getvolumename", options)
        await use(cluster, "a", f"{NAME}/v")
        await delete_pod(cluster, "p")
        await cluster.sleep(3600)
        assert await listed(cluster, "a") == {f"{NAME}/v"}
        await use(cluster, "a")
        await cluster.settle()
        assert await listed(cluster, "a") == set()
        assert driver.calls()[-1] == ["detach", "v", "a"]
        counted = await samples(replica, FAMILY)
        for name in ("volume_attach", "volume_detach"):
            labels = f'migrated="false",operation_name="{name}",status="success",volume_plugin="{NAME}"'
            assert counted[f"{FAMILY}{{{labels}}}"] == 1


async def test_inline_and_read_only_volumes_are_attached(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach=ATTACHED)
    async with world(tmp_path) as (cluster, _):
        await bind(cluster, "v", source={"flexVolume": {"driver": NAME}})
        claimed = {"name": "c", "persistentVolumeClaim": {"claimName": "v", "readOnly": True}}
        inline = {"name": "mine", "flexVolume": {"driver": NAME, "readOnly": True}}
        await cluster.client.create(PODS, pod("p", claimed, inline, node="a"))
        await cluster.settle()
        assert await listed(cluster, "a") == {f"{NAME}/v", f"{NAME}/mine"}
        options = [json.loads(call[1]) for call in driver.calls() if call[0] == "attach"]
        modes = {one["kubernetes.io/pvOrVolumeName"]: one["kubernetes.io/readwrite"] for one in options}
        assert modes == {"v": "ro", "mine": "ro"}


async def test_unsupported_driver_call_counts_as_done(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    async with world(tmp_path) as (cluster, _):
        for name in ("v", "w"):
            await bind(cluster, name, source=SOURCE)
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        assert await paths(cluster, "a") == {f"{NAME}/v": ""}
        await cluster.client.create(PODS, pod("q", of_claim("w"), node="a"))
        await use(cluster, "a")
        await delete_pod(cluster, "p")
        await cluster.sleep(60)
        assert await paths(cluster, "a") == {f"{NAME}/w": ""}
        asked = [call[0] for call in driver.calls()]
        assert len(asked) == len(set(asked))  # each command is called once


async def test_failed_driver_call_is_retried_and_logs_no_secrets(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach={"status": "Failure", "message": "no such disk"})
    with capture_logs() as lines:
        async with world(tmp_path) as (cluster, _):
            await bind(cluster, "v", source=SOURCE)
            await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
            await cluster.sleep(120)
            (event,) = (await cluster.client.list(EVENTS, "default")).items
            assert event.message.startswith('AttachVolume.Attach failed for volume "v" : attach: ')
            assert event.message.endswith("no such disk")
            assert 6 <= event.count <= 9
            assert await listed(cluster, "a") == set()
            driver.answers("attach", ATTACHED)
            await cluster.advance(130)
            assert await listed(cluster, "a") == {f"{NAME}/v"}
    assert "swordfish" not in str(lines)


async def test_hanging_driver_times_out_and_does_not_block_others(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach=ATTACHED)
    Driver(tmp_path, "well", attach=ATTACHED)
    driver.hangs("attach")
    async with world(tmp_path, "--disable-attach-detach-reconcile-sync") as (cluster, _):
        names = [f"v{number}" for number in range(AT_ONCE + 1)]
        for name in names:
            await bind(cluster, name, source=SOURCE)
            await cluster.client.create(PODS, pod(name, of_claim(name), node="a"))
        await bind(cluster, "w", source={"flexVolume": {"driver": "well"}})
        await cluster.client.create(PODS, pod("q", of_claim("w"), node="a"))
        await cluster.sleep(TIMEOUT - 5)
        assert await listed(cluster, "a") == {"well/w"}
        assert await events_of(cluster, "v0") == []
        await cluster.sleep(20)
        assert [await events_of(cluster, name) for name in names] == [[FAILED]] * AT_ONCE + [[]]
        (driver.home / "attach.hangs").unlink()
        await cluster.sleep(TIMEOUT)
        assert await listed(cluster, "a") == {"well/w", *(f"{NAME}/{name}" for name in names)}


async def test_driver_can_be_added_changed_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with world(folder) as (cluster, _):
        await bind(cluster, "v", source=SOURCE)
        await bind(cluster, "w", source=SOURCE)
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(60)
        assert await listed(cluster, "a") == set()
        driver = Driver(folder, init={"status": "Success", "capabilities": {"attach": False}}, attach=ATTACHED)
        await cluster.sleep(2 * PERIOD)
        assert await listed(cluster, "a") == set()
        driver.answers("init", SUCCESS)
        driver.program.unlink()
        driver.install()
        await cluster.sleep(2 * PERIOD)
        assert await listed(cluster, "a") == {f"{NAME}/v"}
        driver.program.unlink()
        await cluster.client.create(PODS, pod("q", of_claim("w"), node="a"))
        await cluster.sleep(2 * PERIOD)
        assert await listed(cluster, "a") == {f"{NAME}/v"}
        assert await events_of(cluster, "q") == [FAILED]
        driver.install()
        await cluster.advance(60)
        assert await listed(cluster, "a") == {f"{NAME}/v", f"{NAME}/w"}


async def test_failed_driver_init_is_retried(tmp_path: Path) -> None:
    driver = Driver(tmp_path, init={"status": "Failure"}, attach=ATTACHED)
    async with world(tmp_path) as (cluster, _):
        await bind(cluster, "v", source=SOURCE)
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(60)
        assert await listed(cluster, "a") == set()
        driver.answers("init", SUCCESS)
        await cluster.sleep(130)
        assert await listed(cluster, "a") == {f"{NAME}/v"}


async def test_new_leader_takes_over_existing_attachments(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach=ATTACHED, detach=SUCCESS)
    async with world(tmp_path) as (cluster, first):
        for name in ("kept", "left"):
            await bind(cluster, name, source=SOURCE)
            await cluster.client.create(PODS, pod(name, of_claim(name), node="a"))
        await cluster.settle()
        await first.kill()
        await cluster.client.delete(PODS, Key("default", "left"), grace=0)
        before = len(driver.calls())
        await cluster.manage(*ON, f"--flex-volume-plugin-dir={tmp_path}", specs=SPECS)
        await use(cluster, "a", f"{NAME}/kept")
        await cluster.sleep(50)
        assert await paths(cluster, "a") == {f"{NAME}/kept": "/dev/sdx"}
        assert driver.calls()[before:] == [["detach", "left", "a"]]


async def test_lost_attachment_is_restored(tmp_path: Path) -> None:
    driver = Driver(tmp_path, attach=ATTACHED, isattached={"status": "Success", "attached": True})
    async with world(tmp_path) as (cluster, _):
        await bind(cluster, "v", source=SOURCE)
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(130)
        assert await events_of(cluster, "p") == [DONE]
        driver.answers("isattached", {"status": "Failure"})
        driver.answers("attach", {**ATTACHED, "device": "/dev/sdy"})
        await cluster.sleep(60)
        assert await paths(cluster, "a") == {f"{NAME}/v": "/dev/sdx"}
        driver.answers("isattached", SUCCESS)
        await cluster.sleep(60)
        assert await paths(cluster, "a") == {f"{NAME}/v": "/dev/sdy"}
