"""Controllers that use their own service accounts, for days and across deletions, restarts and leader changes."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import jwt
import pytest

from controller_manager.app import catalog
from controller_manager.app.permissions import grant
from controller_manager.app.program import flag_set
from controller_manager.common.api.core import (
    ENDPOINTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Namespace,
    Pod,
    Service,
)
from controller_manager.common.api.errors import Forbidden, NotFound
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.rbac import CLUSTER_ROLES
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.options.flag import Options
from controller_manager.framework import Context, ControllerSpec, For, PolicyRule, Requeue
from controller_manager.testing import Cluster

pytestmark = pytest.mark.virtual

FLAG = "--use-service-account-credentials"
ALONE = (FLAG, "--leader-elect=false")
PROCESS = "system:kube-controller-manager"
PREFIX = "system:serviceaccount:kube-system:"
HOUR = 3600.0


class Watched:
    """A cluster that records the requests of its API server with their authenticated users."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.writes: list[tuple[str, str, str]] = []
        self.statuses: list[int] = []
        self.tokens: dict[str, dict[str, Any]] = {}

    def listen(self) -> None:
        """Record requests from now on; must be called after each restart of the API server."""
        api = self.cluster.api
        handle = api.handle

        async def record(request: Request) -> Response:
            response = await handle(request)
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if token:
                self.tokens[token] = jwt.decode(token, options={"verify_signature": False})
                self.statuses.append(response.status)
            if request.method != "GET" and response.status < 400:
                who = await handle(_who_am_i(request))
                assert isinstance(who.body, bytes)
                name = json.loads(who.body)["status"]["userInfo"]["username"]
                self.writes.append((name, request.method, request.path))
            return response

        api.handle = record

    def writers(self, part: str) -> set[str]:
        """Return the users that wrote to paths with this part, without the admin of the test."""
        return {name for name, _, path in self.writes if part in path and name != "kubernetes-admin"}


def _who_am_i(request: Request) -> Request:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    headers = {name: value for name, value in request.headers.items() if name == "authorization"}
    return Request("POST", path, (), headers, b"{}", request.certificate)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with Cluster() as cluster:
        watched = Watched(cluster)
        watched.listen()
        yield watched


class Beat:
    """Writes the time to each pod every ten minutes."""

    def __init__(self, context: Context, _options: Options) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> Requeue | None:
        now = asyncio.get_running_loop().time()
        await self._context.client.patch(PODS, key, {"metadata": {"annotations": {"beat": str(now)}}})
        return Requeue(600)


class NoOptions(Options):
    """None."""

    title = "None"


class EventWriter:
    """Records an event for each pod."""

    def __init__(self, context: Context, _options: Options) -> None:
        self._events, self._pods = context.events, context.informers.get(PODS)

    async def reconcile(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is not None:
            self._events.normal(pod, "Seen", "it is there")


async def test_events_are_written_by_account_of_controller(watched: Watched) -> None:
    writer = ControllerSpec(
        name="writer", reconciler=EventWriter, options=NoOptions, watches=(For(PODS),), service_account="event-writer"
    )
    await watched.cluster.manage(FLAG, specs=(writer,))
    await create_pod(watched.cluster)
    await watched.cluster.settle()
    assert watched.writers("/namespaces/default/events") == {f"{PREFIX}event-writer"}
    assert watched.writers("/namespaces/kube-system/events") == {PROCESS}, "events of the leader election"


async def test_without_account_flag_events_are_written_by_process(watched: Watched) -> None:
    writer = ControllerSpec(
        name="writer", reconciler=EventWriter, options=NoOptions, watches=(For(PODS),), service_account="event-writer"
    )
    await watched.cluster.manage(specs=(writer,))
    await create_pod(watched.cluster)
    await watched.cluster.settle()
    assert watched.writers("/events") == {PROCESS}


def beating(*names: str) -> Sequence[ControllerSpec[Any]]:
    may = (PolicyRule(("",), ("pods",), ("patch",)),)
    return [
        ControllerSpec(name=name, reconciler=Beat, options=NoOptions, watches=(For(PODS),), rbac=may) for name in names
    ]


async def create(cluster: Cluster, resource: Resource[Any], kind: type[Object], **tree: Any) -> None:
    raw = {"apiVersion": resource.api_version, "kind": resource.kind, **tree}
    await cluster.client.create(resource, kind.decode(json.dumps(raw).encode()))


async def create_pod(cluster: Cluster, namespace: str = "default") -> None:
    metadata = {"name": "p", "namespace": namespace, "labels": {"app": "a"}}
    await create(cluster, PODS, Pod, metadata=metadata, spec={"containers": [{"name": "c", "image": "i"}]})


async def beat_of(cluster: Cluster) -> float:
    pod = await cluster.client.get(PODS, Key("default", "p"))
    found = json.loads(pod.raw)["metadata"].get("annotations", {})
    return float(found.get("beat", "0"))


async def is_beating(cluster: Cluster) -> bool:
    return asyncio.get_running_loop().time() - await beat_of(cluster) < 700


async def uid_of(cluster: Cluster, name: str) -> str:
    return (await cluster.client.get(SERVICE_ACCOUNTS, Key("kube-system", name))).metadata.uid


async def test_api_server_sees_each_controller_as_its_account(watched: Watched) -> None:
    cluster = watched.cluster
    await cluster.manage(FLAG)
    await cluster.client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="n")))
    spec = {"selector": {"app": "a"}, "ports": [{"port": 80}]}
    await create(cluster, SERVICES, Service, metadata={"name": "s", "namespace": "n"}, spec=spec)
    await create_pod(cluster, "n")
    await cluster.settle()
    assert await cluster.client.get(ENDPOINTS, Key("n", "s"))
    await cluster.client.delete(NAMESPACES, Key("", "n"))
    await cluster.advance(60)
    with pytest.raises(NotFound):
        await cluster.client.get(NAMESPACES, Key("", "n"))
    assert watched.writers("namespaces/n/endpoints") >= {f"{PREFIX}endpoint-controller"}
    assert watched.writers("namespaces/n/finalize") == {f"{PREFIX}namespace-controller"}
    assert watched.writers("leases/") == {PROCESS}
    by_process = {path.rsplit("/", 1)[1] for name, _, path in watched.writes if name == PROCESS}
    assert by_process == {"leases", "cluster-controller-manager", "serviceaccounts", "token"} | by_process & {"events"}
    assert set(watched.statuses) & {401, 403} == set()


async def test_tokens_are_renewed_for_days(watched: Watched) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    await cluster.manage(*ALONE, specs=beating("beat"))
    for _ in range(4):
        await asyncio.sleep(12 * HOUR)
        assert await is_beating(cluster)
    assert set(watched.statuses) == {200}
    assert len(watched.tokens) == pytest.approx(48 * HOUR / 3000, abs=1)  # at the first write after 42 to 48 minutes
    assert {claims["exp"] - claims["iat"] for claims in watched.tokens.values()} == {3600}


async def test_deleted_account_is_recreated(watched: Watched) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    replica = await cluster.manage(*ALONE, specs=beating("beat"))
    await cluster.sleep(HOUR / 2)
    before = await uid_of(cluster, "beat")
    await cluster.client.delete(SERVICE_ACCOUNTS, Key("kube-system", "beat"))
    await cluster.sleep(660)
    assert await is_beating(cluster)
    assert await uid_of(cluster, "beat") != before
    assert not replica.has_ended


async def test_tokens_signed_by_old_key_are_replaced(watched: Watched) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    await cluster.manage(*ALONE, specs=beating("beat"))
    await cluster.sleep(HOUR / 4)
    await cluster.stop_api()
    await cluster.start_api()  # which generates a new key
    watched.listen()
    await cluster.sleep(700)
    assert 401 in watched.statuses
    assert await is_beating(cluster)
    assert watched.writers("pods/p") == {f"{PREFIX}beat"}


async def test_controller_without_token_does_not_block_others(
    watched: Watched, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    refused = "/serviceaccounts/unlucky/token"

    def refuse(request: Request) -> Response | None:
        return Response(403, {}, Forbidden("not you").status().encode()) if request.path.endswith(refused) else None

    replica = await cluster.manage(*ALONE, specs=beating("unlucky", "beat"))
    replica.network.intercept(refuse)
    await cluster.sleep(HOUR)
    assert watched.writers("pods/p") == {f"{PREFIX}beat"}
    unlucky = next(one for one in replica.manager.state().controllers if one.name == "unlucky")
    assert "kube-system/unlucky" in str(unlucky)
    assert "kube-system/unlucky" in capfd.readouterr().err
    replica.network.intercept(None)
    await cluster.sleep(HOUR)
    assert watched.writers("pods/p") == {f"{PREFIX}beat", f"{PREFIX}unlucky"}


async def test_next_leader_uses_the_same_accounts(watched: Watched) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    first = await cluster.manage(FLAG, specs=beating("beat"))
    await cluster.sleep(5)
    await cluster.manage(FLAG, specs=beating("beat"))
    await cluster.sleep(5)
    before, began = await uid_of(cluster, "beat"), await beat_of(cluster)
    assert len(watched.tokens) == 1
    await first.kill()
    await cluster.sleep(30)
    assert await beat_of(cluster) > began
    assert await uid_of(cluster, "beat") == before
    assert len(watched.tokens) == 2
    assert watched.writers("pods/p") == {f"{PREFIX}beat"}


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.virtual(seed=n)) for n in range(3)])
async def test_process_account_never_writes_pods_despite_faults(watched: Watched, seed: int) -> None:
    cluster = watched.cluster
    await create_pod(cluster)
    await cluster.manage(*ALONE, specs=beating("beat"), faults=0.2)
    await cluster.sleep(3 * HOUR)
    assert watched.writers("pods/p") == {f"{PREFIX}beat"}
    assert await is_beating(cluster)


async def test_accounts_get_only_declared_permissions(watched: Watched) -> None:
    cluster = watched.cluster
    others = beating("beat")
    installed = catalog.choose(catalog.installed(), flag_set(catalog.installed()).parse(("--secure-port=0",)))
    await grant(cluster.client, [*installed, *others])
    before = cluster.api.store.revision
    await grant(cluster.client, [*installed, *others])
    assert cluster.api.store.revision == before
    names = [role.metadata.name for role in (await cluster.client.list(CLUSTER_ROLES)).items]
    assert [name for name in names if name.startswith(f"{PROCESS.removeprefix('system:')}:")] == [
        "kube-controller-manager:beat"  # built-in controllers have default roles
    ]
    beat = cluster.connect(Certificate(f"{PREFIX}beat"))
    await create_pod(cluster)
    await beat.patch(PODS, Key("default", "p"), {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Forbidden):
        await beat.delete(PODS, Key("default", "p"))
