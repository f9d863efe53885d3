"""Service account tokens in secrets, in a whole cluster, in virtual time."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controller_manager.common.api.core import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ConfigMap,
    ObjectReference,
    Pod,
    Secret,
    ServiceAccount,
)
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving.tls import make_ca
from controller_manager.testing import Cluster, Replica
from controllers.legacy_token_cleaner import INVALID_SINCE, LAST_USED, TRACKING, secrets_of
from controllers.legacy_token_cleaner import SPECS as CLEANER
from controllers.service_account_tokens import SPECS
from tests.scenarios.faults import break_watches

pytestmark = pytest.mark.virtual
TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
AUTHORITIES = make_ca("cluster", days=1).certificate.decode()


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    (tmp_path / "sa.key").write_bytes(generate_private_key(SECP256R1()).private_bytes(*form))
    (tmp_path / "ca.crt").write_text(AUTHORITIES)
    files = (f"--service-account-private-key-file={tmp_path / 'sa.key'}", f"--root-ca-file={tmp_path / 'ca.crt'}")
    return ["--leader-elect=false", *files]


def secret(name: str, account: str, uid: str = "", data: dict[str, bytes] | None = None, **labels: str) -> Secret:
    annotations = {NAME: account, **({UID: uid} if uid else {})}
    named = {"kubernetes.io/" + key.replace("_", "-"): value for key, value in labels.items()}
    meta = ObjectMeta(namespace="default", name=name, annotations=annotations, labels=named)
    return Secret(metadata=meta, type=TYPE, data=data or {})


async def account(cluster: Cluster, name: str, *secrets: str) -> ServiceAccount:
    references = tuple(ObjectReference(name=one) for one in secrets)
    made = ServiceAccount(metadata=ObjectMeta(namespace="default", name=name), secrets=references)
    return await cluster.client.create(SERVICE_ACCOUNTS, made)


async def names(cluster: Cluster) -> set[str]:
    return {one.metadata.name for one in (await cluster.client.list(SECRETS, namespace="default")).items}


def claims_of(token: bytes) -> Any:
    payload = token.decode().split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


@pytest.mark.parametrize("nonsense", ["../kube-system/x", "..", "p%2f0", "a\r\nb", "a" * 100_000])
async def test_secret_with_invalid_account_name_is_not_retried(flags: list[str], nonsense: str) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*flags, specs=SPECS, strict=False)
        await account(cluster, "ann")
        await cluster.client.create(SECRETS, secret("bad", nonsense))
        await cluster.client.create(SECRETS, secret("good", "ann"))
        await cluster.advance(600)
        (state,) = (controller.state() for controller in replica.manager._controllers)
        assert state.work is not None
        assert state.work.outcomes["give_up"] == 1
        assert "error" not in state.work.outcomes
        assert (await cluster.client.get(SECRETS, Key("default", "good"))).data["token"]
        assert await names(cluster) == {"bad", "good"}


async def test_secret_gets_missing_token_data(flags: list[str]) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*flags, specs=SPECS)
        owner = await account(cluster, "ann")
        await cluster.client.create(SECRETS, secret("new", "ann"))
        await cluster.client.create(SECRETS, secret("own", "ann", data={"token": b"mine", "other": b"kept"}))
        await cluster.settle()
        new = await cluster.client.get(SECRETS, Key("default", "new"))
        assert claims_of(new.data["token"]) == {
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "new",
            "kubernetes.io/serviceaccount/service-account.name": "ann",
            "kubernetes.io/serviceaccount/service-account.uid": owner.metadata.uid,
            "sub": "system:serviceaccount:default:ann",
        }
        assert (new.data["namespace"], new.data["ca.crt"]) == (b"default", AUTHORITIES.encode())
        assert (new.metadata.annotations or {})[UID] == owner.metadata.uid
        own = await cluster.client.get(SECRETS, Key("default", "own"))
        assert own.data == {**new.data, "token": b"mine", "other": b"kept"}


async def test_new_authorities_are_written_to_all_secrets(flags: list[str], tmp_path: Path) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*flags, specs=SPECS)
        await account(cluster, "ann")
        await cluster.client.create(SECRETS, secret("one", "ann"))
        await cluster.settle()
        before = (await cluster.client.get(SECRETS, Key("default", "one"))).data
        other = make_ca("other", days=1).certificate
        (tmp_path / "ca.crt").write_bytes(other)
        await cluster.advance(11)
        after = (await cluster.client.get(SECRETS, Key("default", "one"))).data
        assert after == {**before, "ca.crt": other}


async def test_secret_of_account_missed_by_watch_is_deleted(flags: list[str]) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*flags, specs=SPECS, strict=False)
        await cluster.settle()
        replica.network.intercept(break_watches(SERVICE_ACCOUNTS.path()))
        replica.network.cut()
        replica.network.heal()
        await account(cluster, "a")
        await cluster.client.create(SECRETS, secret("s", "a"))
        await cluster.sleep(30)
        assert (await cluster.client.get(SECRETS, Key("default", "s"))).data["token"]
        await cluster.client.delete(SERVICE_ACCOUNTS, Key("default", "a"))
        replica.network.intercept(None)
        await cluster.advance(120)
        assert await names(cluster) == set()


async def test_secrets_and_references_are_deleted_with_account(flags: list[str]) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*flags, specs=SPECS)
        owner = await account(cluster, "ann", "a", "b")
        await cluster.client.create(SECRETS, secret("a", "ann", owner.metadata.uid))
        await cluster.client.create(SECRETS, secret("b", "ann"))
        await cluster.client.create(SECRETS, secret("of-an-earlier-one", "ann", "some-other-uid"))
        await cluster.client.create(SECRETS, secret("ownerless", "bob"))
        await cluster.settle()
        assert await names(cluster) == {"a", "b"}
        await cluster.client.delete(SECRETS, Key("default", "a"))
        await cluster.settle()
        left = await cluster.client.get(SERVICE_ACCOUNTS, Key("default", "ann"))
        assert [one.name for one in left.secrets] == ["b"]
        await cluster.client.delete(SERVICE_ACCOUNTS, Key("default", "ann"))
        await cluster.settle()
        assert await names(cluster) == set()


@pytest.mark.flag("service-account-private-key-file")
async def test_controller_without_private_key_does_nothing() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await account(cluster, "ann")
        await cluster.client.create(SECRETS, secret("a", "ann"))
        await cluster.client.create(SECRETS, secret("ownerless", "bob"))
        await cluster.settle()
        assert await names(cluster) == {"a", "ownerless"}
        assert (await cluster.client.get(SECRETS, Key("default", "a"))).data == {}


def day(ago: int) -> str:
    return (utc_now() - timedelta(days=ago)).date().isoformat()


@pytest.mark.flag("legacy-service-account-token-clean-up-period")
async def test_unused_tokens_are_marked_then_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.client.delete(CONFIG_MAPS, TRACKING)
        meta = ObjectMeta(namespace=TRACKING.namespace, name=TRACKING.name)
        await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data={"since": day(0)}))
        kept = ("of-another", "mounted", "used", "wrong")
        owner = await account(cluster, "ann", "unused", "used-long-ago", "mounted", "used", "wrong")
        await cluster.client.create(SECRETS, secret("unused", "ann", owner.metadata.uid))
        await cluster.client.create(SECRETS, secret("used-long-ago", "ann", legacy_token_last_used=day(1)))
        await cluster.client.create(SECRETS, secret("mounted", "ann"))
        await cluster.client.create(SECRETS, secret("of-another", "ann"))
        await cluster.client.create(SECRETS, secret("wrong", "ann", legacy_token_last_used="yesterday"))
        await cluster.client.create(SECRETS, secret("used", "ann", legacy_token_last_used=day(0)))
        await cluster.client.create(PODS, mounting("mounted"))
        await cluster.manage(
            "--leader-elect=false", "--legacy-service-account-token-clean-up-period=48h", specs=CLEANER
        )
        await cluster.advance(2 * 86400)
        assert await marked(cluster) == set()
        await cluster.client.patch(SECRETS, Key("default", "used"), {"metadata": {"labels": {LAST_USED: day(0)}}})
        await cluster.advance(86400 + 10)
        assert await marked(cluster) == {"unused", "used-long-ago"}
        await cluster.client.patch(SECRETS, Key("default", "used"), {"metadata": {"labels": {LAST_USED: day(0)}}})
        await cluster.advance(2 * 86400)
        assert await names(cluster) == {"unused", "used-long-ago", *kept}
        await cluster.client.patch(SECRETS, Key("default", "used"), {"metadata": {"labels": {LAST_USED: day(0)}}})
        await cluster.advance(86400)
        assert await names(cluster) == set(kept)


async def marked(cluster: Cluster) -> set[str]:
    found = (await cluster.client.list(SECRETS, namespace="default")).items
    return {one.metadata.name for one in found if INVALID_SINCE in (one.metadata.labels or {})}


def mounting(name: str) -> Pod:
    tree = {
        "metadata": {"namespace": "default", "name": "mounts"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": name}}]}}],
        },
    }
    return Pod.decode(json.dumps(tree).encode())


def test_secrets_of_pod_covers_all_reference_types() -> None:
    spec = {
        "imagePullSecrets": [{"name": "pull"}, {}],
        "containers": [
            {"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "no"}}]},
            {"env": [{"name": "no", "valueFrom": {"secretKeyRef": {"name": "key", "key": "no"}}}]},
        ],
        "volumes": [
            {"name": "no", "secret": {"secretName": "volume"}},
            {"name": "no", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
            {"name": "no", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
            {"name": "no", "azureFile": {"secretName": "azure"}},
            {"name": "no", "configMap": {"name": "no"}},
        ],
    }
    pod = Pod.decode(json.dumps({"metadata": {"name": "p"}, "spec": spec}).encode())
    assert secrets_of(pod) == {"pull", "from", "key", "volume", "projected", "csi", "azure"}


@pytest.mark.flag("concurrent-serviceaccount-token-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_token_syncs_flag_sets_workers(flags: list[str], workers: int) -> None:
    async with Cluster() as cluster:
        await account(cluster, "ann")
        for number in range(10):
            await cluster.client.create(SECRETS, secret(f"s{number}", "ann"))
        slow = ("--cluster-api-qps=1", "--cluster-api-burst=1", f"--concurrent-serviceaccount-token-syncs={workers}")
        replica = await cluster.manage(*flags, *slow, specs=SPECS)
        assert await most_in_work(cluster, replica) == workers


async def most_in_work(cluster: Cluster, replica: Replica) -> int:
    """Return the maximum number of concurrent secrets within a while."""
    most = 0
    for _ in range(25):
        await cluster.sleep(0.2)
        (work,) = (one.work for one in replica.manager.state().controllers)
        most = max(most, len(work.running) if work is not None else 0)
    return most
