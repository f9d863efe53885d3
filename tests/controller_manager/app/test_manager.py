"""A whole manager against a whole API server, in one process and in virtual time."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from apiserver_stub.common.flags import FLAGS as SERVER_FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.app.catalog import AnySpec
from controller_manager.app.manager import Ending, Manager
from controller_manager.app.pages.controllers import page
from controller_manager.app.program import flag_set
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import EVENTS, PODS, Pod
from controller_manager.common.api.errors import Forbidden, NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Int32
from controller_manager.common.serving.listening import CannotListen
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, Context, ControllerSpec, For, Requeue
from controller_manager.framework.controller.runner import Phase
from controller_manager.testing import FaultyNetwork

pytestmark = pytest.mark.virtual

ADMIN = Certificate("admin", ("system:masters",))
LEASE = Key("kube-system", "cluster-controller-manager")


class LabelOptions(Options):
    concurrent_label_syncs: Int32 = flag(2, "pods labelled at the same time")


@dataclass
class Labeller:
    """Labels every pod with the manager that saw it last."""

    context: Context
    options: LabelOptions
    seen: list[str] = field(default_factory=list)

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = self.context.informers.get(PODS).get(key)
        if pod is not None and "seen-by" not in (pod.metadata.labels or {}):
            label = {"metadata": {"labels": {"seen-by": self.context.runtime.name}}}
            await self.context.client.patch(PODS, key, label)
            self.context.events.normal(pod, "Seen", "the pod was seen")
        return None


SPECS = (
    ControllerSpec(
        name="labelling-controller",
        reconciler=Labeller,
        options=LabelOptions,
        watches=(For(PODS),),
        workers=lambda options: options.concurrent_label_syncs,
    ),
)


def network_of(api: ApiServer) -> FaultyNetwork:
    return FaultyNetwork(lambda obtain: InProcessTransport(api.handle, certificate=ADMIN, obtain=obtain))


class Replica:
    """A manager that runs in the background."""

    def __init__(
        self, api: ApiServer, name: str, group: asyncio.TaskGroup, *argv: str, specs: Sequence[AnySpec] = SPECS
    ) -> None:
        self.network = network_of(api)
        parsed = flag_set(specs).parse(["--secure-port=0", *argv])
        self.manager = Manager(parsed, specs, self.network, Runtime(name))
        self.life: asyncio.Task[Ending] = group.create_task(self.manager.run())

    async def page(self, path: str, *, token: str = "", verbose: bool = False) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        query = (("verbose", ""),) if verbose else ()
        response = await self.manager.pages.handle(Request("GET", path, query, headers=headers))
        assert isinstance(response.body, bytes)
        return response.status, response.body.decode()


@asynccontextmanager
async def cluster(*, token_file: str = "") -> AsyncIterator[tuple[ApiServer, Client, asyncio.TaskGroup]]:
    argv = ["--storage-backend=memory", f"--token-auth-file={token_file}"]
    api = build(SERVER_FLAGS.parse(argv), Runtime("api"))
    await api.start()
    try:
        async with asyncio.TaskGroup() as group:
            yield api, Client(InProcessTransport(api.handle, certificate=ADMIN)), group
    finally:
        await api.stop()


async def create_pod(client: Client, name: str) -> None:
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await client.create(PODS, Pod.decode(json.dumps(raw).encode()))


async def seen_by(client: Client, name: str) -> str:
    pod = await client.get(PODS, Key("default", name))
    return (pod.metadata.labels or {}).get("seen-by", "")


async def holder(client: Client) -> str:
    return (await client.get(LEASES, LEASE)).spec.holder_identity


async def test_second_replica_leads_after_first_stops():
    async with cluster() as (api, client, group):
        first = Replica(api, "first", group)
        await asyncio.sleep(1)
        second = Replica(api, "second", group)
        await asyncio.sleep(5)
        await create_pod(client, "a")
        await asyncio.sleep(1)
        assert await seen_by(client, "a") == "first"

        first.manager.stop("the test said so")
        assert await first.life == Ending(0, "the test said so")
        assert await holder(client) == ""
        await create_pod(client, "b")
        await asyncio.sleep(2.1)
        assert await seen_by(client, "b") == "second"
        second.manager.stop("done")
        await second.life


async def test_stopped_standby_leaves_lease_unchanged():
    async with cluster() as (api, client, group):
        first = Replica(api, "first", group)
        await asyncio.sleep(1)
        leader = await holder(client)
        second = Replica(api, "second", group)
        await asyncio.sleep(5)
        second.manager.stop("never mind")
        assert await second.life == Ending(0, "never mind")
        assert await holder(client) == leader
        first.manager.stop("done")
        await first.life


async def test_disconnected_leader_stops_before_successor_writes():
    async with cluster() as (api, client, group):
        first = Replica(api, "first", group)
        await asyncio.sleep(3)
        second = Replica(api, "second", group)
        await asyncio.sleep(3)
        first.network.cut()
        ending = await first.life
        assert ending.status == 1
        assert "kube-system/cluster-controller-manager could not be renewed" in ending.reason
        await create_pod(client, "a")
        assert not second.manager.may_write()
        await asyncio.sleep(15)
        assert await seen_by(client, "a") == "second"
        second.manager.stop("done")
        await second.life


async def test_standby_logs_leader_and_lease() -> None:
    async with cluster() as (api, client, group):
        first = Replica(api, "first", group)
        await asyncio.sleep(1)
        with capture_logs() as lines:
            second = Replica(api, "second", group)
            await asyncio.sleep(60)
        leader = await holder(client)
        logged = [(one["log_level"], one["lease"], one["holder"]) for one in lines if "standing by" in one["event"]]
        assert logged == [("info", str(LEASE), leader)]
        waits = f"standing by for {leader}, which holds the lease {LEASE}"
        assert f"[+]leaderElection ok: {waits}\n" in (await second.page("/readyz", verbose=True))[1]
        assert "[+]leaderElection ok\n" in (await first.page("/readyz", verbose=True))[1]
        assert f"<p>{waits}.</p>" in page(second.manager.state())
        assert "standing by" not in page(first.manager.state())
        for one in (first, second):
            one.manager.stop("done")
            await one.life


async def test_standby_is_ready_with_caches_and_cannot_write():
    async with cluster() as (api, _, group):
        first = Replica(api, "first", group)
        await asyncio.sleep(1)
        second = Replica(api, "second", group)
        status, text = await second.page("/readyz")
        assert status == 500
        assert "[-]informers failed: reason withheld\n[-]labelling-controller failed: reason withheld\n" in text
        await asyncio.sleep(1)
        assert (await second.page("/readyz"))[0] == 200
        assert (await second.page("/healthz"))[0] == 200
        assert not second.manager.may_write()
        for one in (first, second):
            one.manager.stop("done")


@pytest.mark.parametrize("argv", [(), ("--leader-elect=false",)], ids=["standby", "without election"])
async def test_readyz_fails_while_api_server_is_unreachable(argv: tuple[str, ...]) -> None:
    async with cluster() as (api, _, group):
        leader = Replica(api, "leader", group)
        await asyncio.sleep(1)
        replica = Replica(api, "replica", group, *argv)
        await asyncio.sleep(5)
        replica.network.cut()
        await asyncio.sleep(10)
        assert (await replica.page("/readyz"))[0] == 200
        await asyncio.sleep(20)
        status, text = await replica.page("/readyz")
        assert status == 500
        assert "[-]apiServer failed: reason withheld\n" in text
        assert text.count("[-]") == 1
        assert (await replica.page("/livez"))[0] == (await replica.page("/healthz"))[0] == 200
        replica.network.heal()
        await asyncio.sleep(60)
        assert (await replica.page("/readyz"))[0] == 200
        for one in (replica, leader):
            one.manager.stop("done")


async def test_stop_finishes_reconcile_and_writes_events():
    class Slow(Labeller):
        async def reconcile(self, key: Key) -> Requeue | None:
            await asyncio.sleep(2)
            return await super().reconcile(key)

    specs = (ControllerSpec(name="slow-controller", reconciler=Slow, options=LabelOptions, watches=(For(PODS),)),)
    async with cluster() as (api, client, group):
        first = Replica(api, "first", group, specs=specs)
        await asyncio.sleep(1)
        second = Replica(api, "second", group, specs=specs)
        await asyncio.sleep(4)
        await create_pod(client, "a")
        await asyncio.sleep(1)
        with pytest.raises(Forbidden, match="does not lead"):
            await second.manager._controllers[0]._context.client.delete(PODS, Key("default", "a"))
        for one in (second, first):
            one.manager.stop("enough")
            await one.life
        assert await seen_by(client, "a") == "first"
        assert {"Seen", "LeaderElection"} == {one.reason for one in (await client.list(EVENTS)).items}


async def test_without_election_manager_acts_at_once():
    async with cluster() as (api, client, group):
        only = Replica(api, "only", group, "--leader-elect=false")
        await create_pod(client, "a")
        await asyncio.sleep(1)
        assert await seen_by(client, "a") == "only"
        with pytest.raises(NotFound):
            await holder(client)
        only.manager.stop("done")
        assert await only.life == Ending(0, "done")
        events = (await client.list(EVENTS)).items
        assert [(one.reason, one.involved_object.name) for one in events] == [("Seen", "a")]


async def test_stop_does_not_wait_for_authentication_lookup():
    async with cluster() as (api, _, group):
        only = Replica(api, "only", group, "--authentication-kubeconfig=the server")
        only.network.cut()
        await asyncio.sleep(5)
        only.manager.stop("never mind")
        async with asyncio.timeout(1):
            assert await only.life == Ending(0, "never mind")


class TwoEvents:
    """Records two events about each pod."""

    def __init__(self, context: Context, options: Options) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> None:
        if (pod := self._context.informers.get(PODS).get(key)) is not None:
            self._context.events.normal(pod, "First", "there is a pod")
            self._context.events.normal(pod, "Last", "nothing more to say")


async def test_pending_events_are_written_at_stop():
    two_events = ControllerSpec(
        name="talkative-controller", reconciler=TwoEvents, options=Options, watches=(For(PODS),)
    )
    async with cluster() as (api, client, group):
        flags = ("--leader-elect=false", "--kube-api-qps=1", "--kube-api-burst=1")
        only = Replica(api, "only", group, *flags, specs=(two_events,))
        await asyncio.sleep(3)
        await create_pod(client, "a")
        await asyncio.sleep(0.5)
        assert [one.reason for one in (await client.list(EVENTS)).items] == ["First"]
        only.manager.stop("enough")
        await only.life
        assert {one.reason for one in (await client.list(EVENTS)).items} == {"First", "Last"}


async def test_lingering_connections_do_not_block_the_port():
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        before.accept()[0].close()
        client.close()
    async with cluster() as (api, _, group):
        only = Replica(api, "only", group, "--bind-address=127.0.0.1", f"--secure-port={port}")
        await asyncio.sleep(0.1)
        assert not only.life.done()
        socket.create_connection(("127.0.0.1", port), 5).close()
        only.manager.stop("never mind")
        assert await only.life == Ending(0, "never mind")


async def test_port_in_use_fails_before_controllers_start():
    async with cluster() as (api, client, _):
        with socket.create_server(("127.0.0.1", 0)) as other:
            flags = ("--bind-address=127.0.0.1", f"--secure-port={other.getsockname()[1]}")
            manager = Manager(flag_set(SPECS).parse(flags), SPECS, network_of(api), Runtime("late"))
            with pytest.raises(CannotListen, match="address already in use"):
                await manager.run()
        with pytest.raises(NotFound):
            await holder(client)
        assert all(one.lists == 0 for one in manager.state().informers)


async def test_pages_require_users_of_the_api_server(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("good,alice,1\n")
    async with cluster(token_file=str(tokens)) as (api, _, group):
        delegated = ("--authentication-kubeconfig=the server", "--authorization-kubeconfig=the server")
        only = Replica(api, "only", group, *delegated)
        await asyncio.sleep(1)
        assert (await only.page("/metrics"))[0] == 403
        assert (await only.page("/metrics", token="wrong"))[0] == 401
        status, text = await only.page("/metrics", token="good")
        assert status == 200
        assert 'leader_election_master_status{name="cluster-controller-manager"} 1\n' in text
        status, text = await only.page("/configz", token="good")
        assert status == 200
        assert json.loads(text)["only"]["concurrent-label-syncs"] == 2
        only.manager.stop("done")


@pytest.mark.flag("controller-start-interval")
async def test_controller_start_interval_delays_controllers():
    flags = flag_set(SPECS)
    more = tuple(
        ControllerSpec(name=f"{name}-controller", reconciler=Labeller, options=LabelOptions, watches=(For(PODS),))
        for name in ("one", "two", "three")
    )
    async with cluster() as (api, _, group):
        parsed = flags.parse(["--secure-port=0", "--leader-elect=false", "--controller-start-interval=10s"])
        manager = Manager(parsed, more, network_of(api), Runtime("spaced"))
        life = group.create_task(manager.run())
        for started in (1, 2, 3):
            await asyncio.sleep(5)
            assert [one.phase for one in manager.state().controllers].count(Phase.RUNNING) == started
            await asyncio.sleep(5)
        manager.stop("done")
        assert (await life).status == 0


async def test_unexpected_error_is_logged_last(monkeypatch, capsys):
    async def broken() -> None:
        await asyncio.sleep(3)
        raise RuntimeError("a bug")

    async with cluster() as (api, client, _):
        manager = Manager(flag_set(SPECS).parse(["--secure-port=0"]), SPECS, network_of(api), Runtime("first"))
        monkeypatch.setattr(manager._informers, "run", broken)
        with pytest.raises(ExceptionGroup):
            await manager.run()
        assert await holder(client) == ""
    logged = [line for line in capsys.readouterr().err.splitlines() if line[:1] in "FE"]
    assert "an unexpected error: RuntimeError: a bug" in logged[-1]
