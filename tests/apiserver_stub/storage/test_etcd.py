"""A storage in etcd that is full, disconnected or down, and agreement of several storages."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage, client
from apiserver_stub.storage.etcd import storage as etcd_storage
from apiserver_stub.storage.interface import Compare, Record, RevisionConflict, Unusable, Write
from controller_manager.common.api.errors import RequestEntityTooLarge, ServiceUnavailable, Timeout
from controller_manager.common.serving.tls import KeyPair, issue, make_ca
from tests.etcd import Etcd, Partition, running

pytestmark = pytest.mark.needs("etcd")


def put(key: str, expected: int = 0, size: int = 10, ttl: float = 0.0) -> Write:
    return Write("pods", key, expected, b'{"metadata":{"resourceVersion":""},"k":"%b"}' % (b"x" * size), ttl=ttl)


def delete(key: str, expected: int) -> Write:
    return Write("pods", key, expected, b'{"metadata":{"resourceVersion":""},"last":1}', deleted=True)


def storage_on(urls: list[str], prefix: str, compaction: float = 0.0) -> EtcdStorage:
    return EtcdStorage(EtcdServers(urls), EtcdRules(prefix, compaction, 0.2, 0.2), CollectorRegistry())


async def wait_until(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


class RecordedWatch:
    """The events of a watch, and why it ended."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.revision = 0
        self.ended: list[str] = []

    def __call__(self, records: Any, revision: int) -> None:
        self.records += records
        self.revision = revision


@pytest.fixture
async def partition(etcd: Etcd) -> AsyncIterator[Partition]:
    async with Partition(etcd.members[0].port) as found:
        yield found


@pytest.fixture(scope="module")
def small_etcd() -> Iterator[Etcd]:
    """An etcd that is soon full, and which allows short leases."""
    with running(1, "--heartbeat-interval=10", "--election-timeout=50", f"--quota-backend-bytes={2 << 20}") as found:
        yield found


async def test_rows_with_same_expiry_share_a_lease(small_etcd: Etcd) -> None:
    storage = storage_on(small_etcd.urls, "/leases")
    await storage.open()
    watched = RecordedWatch()
    start = await storage.txn([put("a", ttl=1.0), put("b", ttl=1.0), put("c")])
    await storage.watch(start, watched)
    again = await storage.txn([put("b", start)])
    await wait_until(lambda: any(record.deleted for record in watched.records))
    (gone,) = [record for record in watched.records if record.deleted]
    assert (gone.key, gone.decode_error) == ("a", "")
    assert gone.data == put("a").data.replace(b'""', b'"%d"' % gone.revision)
    assert [(row.key, row.revision) for row in (await storage.list("pods")).records] == [("b", again), ("c", start)]
    await storage.close()


async def test_oversized_write_is_rejected_and_full_etcd_can_delete(small_etcd: Etcd) -> None:
    storage = storage_on(small_etcd.urls, "/full")
    await storage.open()
    with pytest.raises(RequestEntityTooLarge):
        await storage.txn([put("large", size=2 << 20)])
    with pytest.raises(RequestEntityTooLarge):
        await storage.txn([put("larger", size=7 << 18)])
    made: dict[str, int] = {}

    async def fill() -> None:
        for number in range(20):
            made[f"p{number}"] = await storage.txn([put(f"p{number}", size=1 << 20)])

    with pytest.raises(ServiceUnavailable, match="space"):
        await fill()
    assert made
    watched, start = RecordedWatch(), await storage.current_revision()
    await storage.watch(start, watched)
    for key, revision in made.items():
        await storage.txn([delete(key, revision)])
    await wait_until(lambda: len(watched.records) == len(made))
    assert all(record.deleted and not record.decode_error for record in watched.records)
    assert storage.failures == {"refused": 3, "unknown": 0}
    assert storage.problem == ""
    await storage.close()


async def test_etcd_with_authentication_is_one_error_line() -> None:
    with running() as etcd:
        url = f"{etcd.urls[0]}/v3/auth"
        for path, body in (
            ("user/add", {"name": "root", "password": "x"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            ask = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode(), method="POST")
            await asyncio.to_thread(urllib.request.urlopen, ask)
        with pytest.raises(Unusable, match="cannot be used: etcdserver: user name is empty"):
            await storage_on(etcd.urls, "/registry").open()


async def test_keys_of_kube_apiserver_are_not_touched(etcd: Etcd) -> None:
    mine = storage_on(etcd.urls, "/foreign")
    await mine.open()
    await mine.txn([Write("namespaces", "default", 0, b"k8s\0\n\x0f")])
    await mine.close()
    with pytest.raises(Unusable, match="--etcd-prefix"):
        await storage_on(etcd.urls, "/foreign").open()


async def test_write_without_answer_is_unknown_but_watched(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_ATTEMPTS", 2)
    storage = storage_on([partition.url], "/unknown")
    await storage.open()
    start, watched = await storage.txn([put("a")]), RecordedWatch()
    await storage.watch(start, watched, watched.ended.append)
    partition.keep_answers()
    lost = storage.txn([put("b")])
    await asyncio.sleep(0.3)
    partition.cut()
    with pytest.raises(Timeout, match="unknown"):
        await lost
    await wait_until(lambda: watched.ended and storage.problem)
    with pytest.raises(ServiceUnavailable):
        await storage.txn([put("c")])
    partition.heal()
    await wait_until(lambda: not storage.problem)
    await storage.watch(start, watched)
    assert [record.key for record in watched.records] == ["b"]
    with pytest.raises(RevisionConflict):
        await storage.txn([put("b")])
    assert storage.failures == {"refused": 1, "unknown": 1}
    await storage.close()


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("what", ["change", "deletion", "creation"])
async def test_outcome_of_unanswered_write_is_found(partition: Partition, etcd: Etcd, what: str, arrives: bool) -> None:
    prefix = f"/fate-{what}-{arrives}"
    direct, storage = storage_on(etcd.urls, prefix), storage_on([partition.url], prefix)
    await direct.open()
    await storage.open()
    start = await direct.txn([put("a")])
    write = {"change": put("a", start, 20), "deletion": delete("a", start), "creation": put("b")}[what]
    (partition.keep_answers if arrives else partition.keep_requests)()
    done = storage.txn([write])
    await asyncio.sleep(0.2)
    partition.cut()
    partition.heal()
    if what == "creation" and not arrives:
        with pytest.raises(Timeout, match="unknown"):
            await done
        assert storage.failures == {"refused": 0, "unknown": 1}
    else:
        assert await done == start + 1
        found = await direct.get(write.resource, write.key)
        assert (found.revision if found else 0) == (0 if write.deleted else start + 1)
        assert storage.failures == {"refused": 0, "unknown": 0}
    await direct.close()
    await storage.close()


@pytest.mark.parametrize("arrives", [True, False])
async def test_outcome_is_found_despite_later_writes_by_others(partition: Partition, etcd: Etcd, arrives: bool) -> None:
    prefix = f"/fate-others-{arrives}"
    direct, storage = storage_on(etcd.urls, prefix), storage_on([partition.url], prefix)
    await direct.open()
    await storage.open()
    start = await direct.txn([put("a")])
    (partition.keep_answers if arrives else partition.keep_requests)()
    done = storage.txn([put("a", start, 20)])
    await asyncio.sleep(0.2)
    other = await direct.txn([put("a", start + arrives, 30)])
    partition.cut()
    partition.heal()
    if arrives:
        assert await done == start + 1
    else:
        with pytest.raises(RevisionConflict) as refused:
            await done
        assert refused.value.current == other
    assert storage.failures == {"refused": 0, "unknown": 0}
    await direct.close()
    await storage.close()


async def test_next_member_is_used_when_one_is_down(partition: Partition, etcd: Etcd) -> None:
    storage = storage_on([partition.url, etcd.urls[0]], "/another")
    await storage.open()
    first, watched = await storage.txn([put("a")]), RecordedWatch()
    await storage.watch(first, watched, watched.ended.append)
    partition.cut()
    await wait_until(lambda: watched.ended)
    second = await storage.txn([put("b")])
    await storage.watch(first, watched)
    assert [record.revision for record in watched.records] == [second]
    found = await storage.get("pods", "a")
    assert found is not None
    assert found.revision == first
    await storage.close()


async def test_current_revision_is_reached_without_own_writes(etcd: Etcd) -> None:
    """The watch of one prefix asks for progress, because it gets no events of its own."""
    one, other = storage_on(etcd.urls, "/one"), storage_on(etcd.urls, "/other")
    await one.open()
    await other.open()
    watched = RecordedWatch()
    await one.watch(await one.current_revision(), watched)
    newest = await other.txn([put("a")])
    assert all(revision >= newest for revision in await asyncio.gather(*(one.current_revision() for _ in range(20))))
    await wait_until(lambda: watched.revision >= newest)
    assert watched.records == []
    await one.close()
    await other.close()


async def test_one_of_several_servers_compacts(etcd: Etcd) -> None:
    servers = [storage_on(etcd.urls, "/compacted", 1e-9) for _ in range(3)]
    for server in servers:
        await server.open()
    first = await servers[0].txn([put("a")])
    revision = await servers[0].txn([put("a", first)])
    await asyncio.gather(*(server.compact(first) for server in servers), return_exceptions=True)
    done = await asyncio.gather(*(server.compact(revision) for server in servers), return_exceptions=True)
    assert sum(one is None for one in done) == 1
    assert {type(one) for one in done if one is not None} == {ServiceUnavailable}
    assert {await server.oldest_revision() for server in servers} == {revision}
    patient = storage_on(etcd.urls, "/compacted", 300.0)
    await patient.open()
    with pytest.raises(ServiceUnavailable, match="compacted recently"):
        await patient.compact(await patient.txn([put("b")]))
    for server in (*servers, patient):
        await server.close()


async def test_condition_on_another_row_holds_across_servers(etcd: Etcd) -> None:
    one, other = storage_on(etcd.urls, "/both"), storage_on(etcd.urls, "/both")
    await one.open()
    await other.open()
    namespace = await one.txn([put("n")])
    gone = await other.txn([delete("n", namespace)])
    with pytest.raises(RevisionConflict) as refused:
        await one.txn([put("a")], [Compare("pods", "n", namespace)])
    assert (refused.value.key, refused.value.current, refused.value.revision) == ("n", 0, gone)
    await one.close()
    await other.close()


async def test_requests_are_counted_by_operation_and_resource(etcd: Etcd) -> None:
    registry = CollectorRegistry()
    rules = EtcdRules("/counted", size_poll=0.1, healthcheck=0.1, inspect=lambda data: "" if data == b"{}" else "bad")
    storage = EtcdStorage(EtcdServers(etcd.urls), rules, registry)
    await storage.open()
    first = await storage.txn([Write("deployments.apps", "a", 0, b"{}")])
    with pytest.raises(RevisionConflict):
        await storage.txn([Write("deployments.apps", "a", 0, b"{}")])
    await storage.txn([Write("deployments.apps", "a", first, b"{}")])
    await storage.txn([Write("pods", "bad", 0, b"?")])
    assert [len((await storage.list(resource)).records) for resource in ("deployments.apps", "nodes", None)] == [
        1,
        0,
        2,
    ]
    await wait_until(lambda: b"apiserver_storage_size_bytes{" in generate_latest(registry))
    shown = generate_latest(registry).decode()
    assert 'etcd_requests_total{group="apps",operation="create",resource="deployments"} 2.0' in shown
    assert "etcd_request_errors_total{" not in shown
    for done, number in (("total", 2), ("fetched_objects_total", 2), ("returned_objects_total", 2)):
        assert f'apiserver_storage_list_{done}{{group="apps",resource="deployments"}} {number}.0' in shown
    assert 'apiserver_storage_list_returned_objects_total{group="",resource="nodes"} 0.0' in shown
    assert 'apiserver_storage_decode_errors_total{group="",resource="pods"} 1.0' in shown
    assert 'etcd_requests_total{group="apps",operation="update",resource="deployments"} 1.0' in shown
    assert 'etcd_request_duration_seconds_bucket{group="apps",le="0.005",operation="update"' in shown
    assert 'storage_cluster_id="etcd-0"' in shown
    await storage.close()


class PortDialer:
    """Connects every name to one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        found = socket.create_connection(("127.0.0.1", self._port))
        found.setblocking(False)
        return found


async def test_member_is_reached_through_proxy_with_rotated_certs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_storage, "_START", 0.0)
    monkeypatch.setattr(client, "_ATTEMPTS", 2)
    servers, clients = make_ca("servers"), make_ca("clients")
    own = issue(servers, "etcd", hosts=["etcd.example"])
    files = {"ca": clients.certificate, "crt": own.certificate, "key": own.key, "servers": servers.certificate}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    proofs = [tmp_path / "client.crt", tmp_path / "client.key"]

    def give(client: KeyPair) -> None:
        for file, data in zip(proofs, (client.certificate, client.key), strict=True):
            file.write_bytes(data)

    give(issue(clients, "apiserver", client=True))
    given = [
        f"--{flag}={tmp_path / name}"
        for flag, name in (("trusted-ca-file", "ca"), ("cert-file", "crt"), ("key-file", "key"))
    ]
    with running(1, "--client-cert-auth", *given) as etcd:
        way = PortDialer(etcd.members[0].port)
        member = EtcdServers(["https://etcd.example:2379"], str(tmp_path / "servers"), *map(str, proofs), way)
        storage = EtcdStorage(member, EtcdRules("/tls"))
        await storage.open()
        watched = RecordedWatch()
        first = await storage.txn([put("a")])
        await storage.watch(first, watched, watched.ended.append)
        asked = len(way.asked)
        await storage._client.refresh()
        assert await storage.txn([put("b")]) > first
        assert len(way.asked) == asked
        give(issue(clients, "apiserver", client=True))
        refreshing = asyncio.create_task(storage._client.refresh())
        await asyncio.sleep(0.1)
        assert await storage.txn([put("c")]) > first
        assert way.asked == [("etcd.example", 2379)] * (asked + 1)
        await wait_until(lambda: [record.key for record in watched.records] == ["b", "c"])
        refreshing.cancel()
        await storage.close()
    proofs[0].unlink()
    with pytest.raises(Unusable, match=r"client\.crt"):
        await EtcdStorage(member, EtcdRules("/tls")).open()


async def test_new_server_starts_with_some_history(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_on(etcd.urls, "/some-history")
    await storage.open()
    revision = 0
    for _ in range(20):
        revision = await storage.txn([put("a", revision)])
    begun = await storage.oldest_revision()
    monkeypatch.setattr(etcd_storage, "_HISTORY", 5)
    assert await storage.oldest_revision() == await storage.current_revision() - 5 > begun
    await storage.close()
