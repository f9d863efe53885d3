"""The service account `default` and the root CA config map of every namespace, in virtual time.

Invariants under faults:
- the account is created and never changed; the config map is created and updated;
- no other object is written, and none is deleted;
- after recovery each namespace that is not being deleted has both, and the config map is correct.
"""

import contextlib
from pathlib import Path

import pytest

from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, ConfigMap, Namespace
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source
from controller_manager.common.serving.tls import make_ca
from controller_manager.framework import ConfigError
from controller_manager.testing import Cluster, Replica, builders

PEM = make_ca("pods trust it", days=1).certificate.decode()
BOTH = "--controllers=serviceaccount,root-ca-cert-publisher"
NAME = "kube-root-ca.crt"
SPACES = ("a", "b", "c")
QUIET = 60.0
WRITES = {("POST", "serviceaccounts"), ("POST", "configmaps"), ("PUT", "configmaps")}


def write(file: Path, text: str) -> None:
    file.write_text(text)


def read(file: Path) -> str:
    return file.read_text()


@pytest.fixture
def root_ca(tmp_path: Path) -> Path:
    file = tmp_path / "ca.crt"
    write(file, PEM)
    return file


async def manage(cluster: Cluster, root_ca: Path, *flags: str, faults: float = 0.0) -> Replica:
    samples = (BOTH, f"--root-ca-file={root_ca}", *(flags or ("--leader-elect=false",)))
    return await cluster.manage(*samples, faults=faults, may_lose_lead=faults > 0)


async def published(cluster: Cluster, namespace: str) -> ConfigMap:
    return await cluster.client.get(CONFIG_MAPS, Key(namespace, NAME))


@pytest.mark.virtual
async def test_every_namespace_gets_account_and_root_ca(root_ca: Path) -> None:
    async with Cluster() as cluster:
        await manage(cluster, root_ca)
        await cluster.client.create(NAMESPACES, builders.namespace("new"))
        await cluster.settle()
        for namespace in ("default", "kube-system", "new"):
            await cluster.client.get(SERVICE_ACCOUNTS, Key(namespace, "default"))
            found = await published(cluster, namespace)
            assert found.data == {"ca.crt": PEM}
            assert "kubernetes.default.svc" in (found.metadata.annotations or {})["kubernetes.io/description"]


@pytest.mark.virtual
async def test_two_active_managers_cause_no_errors(root_ca: Path) -> None:
    async with Cluster() as cluster:
        replicas = [await manage(cluster, root_ca) for _ in range(2)]
        for number in range(10):
            await cluster.client.create(NAMESPACES, builders.namespace(f"new-{number}"))
        await cluster.settle()
        outcomes = [
            one.work.outcomes for replica in replicas for one in replica.manager.state().controllers if one.work
        ]
        assert sum(one.get("conflict", 0) for one in outcomes) > 0, "no write conflict occurred"
        assert [one for one in outcomes if "error" in one] == []


@pytest.mark.virtual
async def test_deleted_or_edited_objects_are_restored(root_ca: Path) -> None:
    async with Cluster() as cluster:
        await manage(cluster, root_ca)
        await cluster.settle()
        account, bundle = Key("default", "default"), Key("default", NAME)
        first = await cluster.client.get(SERVICE_ACCOUNTS, account)
        await cluster.client.delete(SERVICE_ACCOUNTS, account)
        await cluster.client.patch(CONFIG_MAPS, bundle, {"data": {"ca.crt": "mine", "more": "x"}})
        await cluster.settle()
        assert (await cluster.client.get(SERVICE_ACCOUNTS, account)).metadata.uid != first.metadata.uid
        assert (await published(cluster, "default")).data == {"ca.crt": PEM}
        await cluster.client.delete(CONFIG_MAPS, bundle)
        await cluster.settle()
        assert (await published(cluster, "default")).data == {"ca.crt": PEM}


@pytest.mark.virtual
async def test_terminating_namespace_gets_no_objects(root_ca: Path) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster, root_ca)
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.settle()
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.client.delete(SERVICE_ACCOUNTS, Key("old", "default"))
        await cluster.client.delete(CONFIG_MAPS, Key("old", NAME))
        await cluster.advance(60)
        assert not (await cluster.client.list(SERVICE_ACCOUNTS, "old")).items
        assert not (await cluster.client.list(CONFIG_MAPS, "old")).items
        outcomes = [one.work.outcomes for one in replica.manager.state().controllers if one.work is not None]
        assert all("error" not in one for one in outcomes)


@pytest.mark.virtual
@pytest.mark.flag("root-ca-file")
async def test_changed_root_ca_file_is_published_everywhere(root_ca: Path) -> None:
    async with Cluster() as cluster:
        await manage(cluster, root_ca)
        await cluster.settle()
        write(root_ca, PEM * 2)
        await cluster.advance(15)
        assert (await published(cluster, "kube-public")).data == {"ca.crt": PEM * 2}
        write(root_ca, "broken")
        await cluster.advance(15)
        assert (await published(cluster, "default")).data == {"ca.crt": PEM * 2}


@pytest.mark.virtual
async def test_invalid_root_ca_file_fails_startup(root_ca: Path) -> None:
    write(root_ca, "broken")
    async with Cluster() as cluster:
        with pytest.raises(ConfigError, match="holds no certificates in PEM"):
            await manage(cluster, root_ca)


@pytest.mark.virtual
async def test_without_authorities_an_empty_root_ca_is_published() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", BOTH)
        await cluster.settle()
        assert (await published(cluster, "default")).data == {"ca.crt": ""}


@pytest.mark.virtual
async def test_root_ca_publisher_metrics_count_syncs(root_ca: Path) -> None:
    async with Cluster() as cluster:
        page = "--authorization-always-allow-paths=/metrics"
        replica = await manage(cluster, root_ca, page, "--leader-elect=false")
        await cluster.settle()
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(answer.body, bytes)
        samples = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#"))
        assert float(samples['root_ca_cert_publisher_sync_total{code="200"}']) >= 4
        assert float(samples['root_ca_cert_publisher_sync_duration_seconds_count{code="200"}']) >= 4


class Written:
    """Checks each write of a manager against the invariants, before the server sees it."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def __call__(self, request: Request) -> Response | None:
        if request.method != "GET" and not {"leases", "events"} & set(request.path.split("/")):
            collection, name = request.path, ""
            if request.method != "POST":
                collection, _, name = request.path.rpartition("/")
            kind = collection.rpartition("/")[2]
            if (request.method, kind) not in WRITES or name not in ("", NAME):
                self.violations.append(f"{request.method} {request.path}")
        return None


async def disturb(cluster: Cluster, root_ca: Path) -> None:
    """Run a random action of users."""
    space = SPACES[int(random_source().uniform(0, len(SPACES))) % len(SPACES)]
    account, bundle = Key(space, "default"), Key(space, NAME)
    client = cluster.client
    match int(random_source().uniform(0, 7)):
        case 0 | 1:
            await client.create(NAMESPACES, builders.namespace(space))
        case 2:
            await client.delete(NAMESPACES, Key("", space))
        case 3:
            await client.delete(SERVICE_ACCOUNTS, account)
        case 4:
            await client.delete(CONFIG_MAPS, bundle)
        case 5:
            await client.patch(CONFIG_MAPS, bundle, {"data": {"ca.crt": "mine"}, "metadata": {"annotations": None}})
        case _:
            write(root_ca, PEM * int(random_source().uniform(1, 4)))


@pytest.mark.virtual(seeds=200)
async def test_account_and_root_ca_exist_after_faults(root_ca: Path) -> None:
    async with Cluster() as cluster:
        written = Written()
        replicas = [await manage(cluster, root_ca, "--leader-elect=true", faults=0.2) for _ in range(2)]
        for replica in replicas:
            replica.network.intercept(written)
        for _ in range(12):
            with contextlib.suppress(ApiError):
                await disturb(cluster, root_ca)
            await cluster.sleep(random_source().uniform(0, 3))
        if random_source().uniform(0, 1) < 0.5:
            await replicas[0].kill()
            replicas.append(await manage(cluster, root_ca, "--leader-elect=true"))
        for replica in replicas:
            replica.network.rate = 0
            replica.network.cut()  # silent watches are restarted
            replica.network.heal()
        await cluster.sleep(QUIET)
        if all(replica.has_ended for replica in replicas):  # a replica that loses the lease exits and is restarted
            await manage(cluster, root_ca, "--leader-elect=true")
        await cluster.advance(QUIET)
        assert written.violations == []
        for namespace in (await cluster.client.list(NAMESPACES)).items:
            await check(cluster, namespace, read(root_ca))


async def check(cluster: Cluster, namespace: Namespace, authorities: str) -> None:
    name = key_of(namespace).name
    if namespace.metadata.deletion_timestamp is None:
        await cluster.client.get(SERVICE_ACCOUNTS, Key(name, "default"))
        found = await published(cluster, name)
        assert found.data == {"ca.crt": authorities}
        assert (found.metadata.annotations or {})["kubernetes.io/description"]
