"""What is kept in every namespace: the account `default` and the authorities pods trust, in virtual time.

Invariants, whatever goes wrong meanwhile:
  - the account is created and never changed, whatever is in it; the config map is created and updated;
  - nothing but these two is written, and nothing is deleted;
  - once it is quiet, every namespace that is not being deleted has both, and the config map says what it should.
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
    told = (BOTH, f"--root-ca-file={root_ca}", *(flags or ("--leader-elect=false",)))
    return await cluster.manage(*told, faults=faults, may_lose_lead=faults > 0)


async def published(cluster: Cluster, namespace: str) -> ConfigMap:
    return await cluster.client.get(CONFIG_MAPS, Key(namespace, NAME))


@pytest.mark.virtual
async def test_every_namespace_has_both_the_new_ones_too(root_ca: Path) -> None:
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
async def test_two_that_lead_beside_each_other_do_not_fail(root_ca: Path) -> None:
    async with Cluster() as cluster:
        replicas = [await manage(cluster, root_ca) for _ in range(2)]
        for number in range(10):
            await cluster.client.create(NAMESPACES, builders.namespace(f"new-{number}"))
        await cluster.settle()
        outcomes = [
            one.work.outcomes for replica in replicas for one in replica.manager.state().controllers if one.work
        ]
        assert sum(one.get("conflict", 0) for one in outcomes) > 0, "they never met"
        assert [one for one in outcomes if "error" in one] == []


@pytest.mark.virtual
async def test_what_is_deleted_comes_back_and_what_is_changed_is_put_right(root_ca: Path) -> None:
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
async def test_a_namespace_that_is_being_deleted_gets_nothing_back(root_ca: Path) -> None:
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
async def test_another_content_of_the_file_is_published_everywhere(root_ca: Path) -> None:
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
async def test_a_file_of_no_use_keeps_the_manager_from_starting(root_ca: Path) -> None:
    write(root_ca, "broken")
    async with Cluster() as cluster:
        with pytest.raises(ConfigError, match="holds no certificates in PEM"):
            await manage(cluster, root_ca)


@pytest.mark.virtual
async def test_without_a_file_and_without_authorities_of_the_client_pods_get_an_empty_one() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", BOTH)
        await cluster.settle()
        assert (await published(cluster, "default")).data == {"ca.crt": ""}


@pytest.mark.virtual
async def test_it_is_counted_how_it_went(root_ca: Path) -> None:
    async with Cluster() as cluster:
        page = "--authorization-always-allow-paths=/metrics"
        replica = await manage(cluster, root_ca, page, "--leader-elect=false")
        await cluster.settle()
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(answer.body, bytes)
        told = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#"))
        assert float(told['root_ca_cert_publisher_sync_total{code="200"}']) >= 4
        assert float(told['root_ca_cert_publisher_sync_duration_seconds_count{code="200"}']) >= 4


class Written:
    """Checks each write of a manager against the invariants, before the server sees it."""

    def __init__(self) -> None:
        self.offences: list[str] = []

    def __call__(self, request: Request) -> Response | None:
        if request.method != "GET" and not {"leases", "events"} & set(request.path.split("/")):
            collection, name = request.path, ""
            if request.method != "POST":
                collection, _, name = request.path.rpartition("/")
            kind = collection.rpartition("/")[2]
            if (request.method, kind) not in WRITES or name not in ("", NAME):
                self.offences.append(f"{request.method} {request.path}")
        return None


async def disturb(cluster: Cluster, root_ca: Path) -> None:
    """One thing people do."""
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
async def test_both_are_there_whatever_goes_wrong(root_ca: Path) -> None:
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
            replica.network.cut()  # a watch that fell silent is opened anew
            replica.network.heal()
        await cluster.sleep(QUIET)
        if all(replica.has_ended for replica in replicas):  # whoever lost the lead ends, to be started anew
            await manage(cluster, root_ca, "--leader-elect=true")
        await cluster.advance(QUIET)
        assert written.offences == []
        for namespace in (await cluster.client.list(NAMESPACES)).items:
            await check(cluster, namespace, read(root_ca))


async def check(cluster: Cluster, namespace: Namespace, authorities: str) -> None:
    name = key_of(namespace).name
    if namespace.metadata.deletion_timestamp is None:
        await cluster.client.get(SERVICE_ACCOUNTS, Key(name, "default"))
        found = await published(cluster, name)
        assert found.data == {"ca.crt": authorities}
        assert (found.metadata.annotations or {})["kubernetes.io/description"]
