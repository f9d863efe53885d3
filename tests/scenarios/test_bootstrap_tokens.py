"""Bootstrap tokens in a whole cluster, in virtual time: cluster-info is signed by each signing token, and expired
tokens are deleted.
"""

from datetime import timedelta

import pytest

from controller_manager.common.api.core import CONFIG_MAPS, SECRETS, ConfigMap, Secret
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.testing import Cluster
from controllers.bootstrap_tokens import CLUSTER_INFO, SPECS, SigningKey, detached_signature

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false", "--controllers=bootstrap-signer-controller,token-cleaner-controller")
TYPE = "bootstrap.kubernetes.io/token"


def token(name: str, *, lasts: float | str = "", of_type: str = TYPE, **data: str) -> Secret:
    """Return the secret of a signing token that expires `lasts` seconds from now, or at the given time."""
    ends = lasts if isinstance(lasts, str) else format_time(utc_now() + timedelta(seconds=lasts))
    fields = {"token-id": name, "token-secret": f"{name}0123456789", "usage-bootstrap-signing": "true"}
    fields["expiration"] = ends
    values = {key.replace("_", "-"): value for key, value in {**fields, **data}.items()}
    meta = ObjectMeta(namespace="kube-system", name=f"bootstrap-token-{name}")
    return Secret(metadata=meta, type=of_type, data={key: value.encode() for key, value in values.items() if value})


async def publish(cluster: Cluster, **data: str) -> None:
    meta = ObjectMeta(namespace=CLUSTER_INFO.namespace, name=CLUSTER_INFO.name)
    await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data=data))


async def signatures(cluster: Cluster) -> set[str]:
    data = (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data
    return {name.removeprefix("jws-kubeconfig-") for name in data if name.startswith("jws-")}


def test_signature_equals_go_signature() -> None:
    # Result of ComputeDetachedSignature of k8s.io/cluster-bootstrap.
    content = "Hello from the other side. I must have called a thousand times."
    assert detached_signature(content, SigningKey("joshua", b"my voice is my passcode", None)) == (
        "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
    )


async def test_each_signing_token_has_a_signature() -> None:
    async with Cluster() as cluster:
        await publish(cluster, kubeconfig="a: 1")
        for secret in (
            token("aaaaaa"),
            token("bbbbbb", lasts=60.0),
            token("cccccc", usage_bootstrap_signing="false"),
            token("dddddd", token_id="eeeeee"),
            token("ffffff", token_secret=""),
            token("gggggg", of_type="Opaque"),
        ):
            await cluster.client.create(SECRETS, secret)
        await cluster.manage(*ON, specs=SPECS)
        await cluster.settle()
        assert await signatures(cluster) == {"aaaaaa", "bbbbbb"}
        before = (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data
        assert before["jws-kubeconfig-aaaaaa"] == detached_signature(
            "a: 1", SigningKey("aaaaaa", b"aaaaaa0123456789", None)
        )

        await cluster.client.patch(CONFIG_MAPS, CLUSTER_INFO, {"data": {"kubeconfig": "a: 2", "jws-kubeconfig-x": "y"}})
        await cluster.settle()
        after = (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data
        assert await signatures(cluster) == {"aaaaaa", "bbbbbb"}
        assert after["jws-kubeconfig-aaaaaa"] != before["jws-kubeconfig-aaaaaa"]

        await cluster.client.delete(SECRETS, Key("kube-system", "bootstrap-token-aaaaaa"))
        await cluster.settle()
        assert await signatures(cluster) == {"bbbbbb"}
        await cluster.advance(61)
        assert await signatures(cluster) == set()


async def test_cluster_info_without_kubeconfig_is_not_signed() -> None:
    async with Cluster() as cluster:
        await publish(cluster, other="a")
        await cluster.client.create(SECRETS, token("aaaaaa"))
        await cluster.manage(*ON, specs=SPECS)
        await cluster.settle()
        assert (await cluster.client.get(CONFIG_MAPS, CLUSTER_INFO)).data == {"other": "a"}


async def test_expired_tokens_are_deleted() -> None:
    async with Cluster() as cluster:
        for secret in (
            token("aaaaaa"),
            token("bbbbbb", lasts=60.0),
            token("cccccc", lasts=-1.0),
            token("dddddd", lasts="tomorrow"),
            token("eeeeee", lasts=-1.0, of_type="Opaque"),
        ):
            await cluster.client.create(SECRETS, secret)
        await cluster.manage(*ON, specs=SPECS)
        await cluster.settle()
        assert await left(cluster) == {"aaaaaa", "bbbbbb", "eeeeee"}
        await cluster.client.patch(
            SECRETS, Key("kube-system", "bootstrap-token-aaaaaa"), {"stringData": {"expiration": _in(30)}}
        )
        await cluster.advance(31)
        assert await left(cluster) == {"bbbbbb", "eeeeee"}
        await cluster.advance(30)
        assert await left(cluster) == {"eeeeee"}


def _in(seconds: float) -> str:
    return format_time(utc_now() + timedelta(seconds=seconds))


async def left(cluster: Cluster) -> set[str]:
    found = (await cluster.client.list(SECRETS, namespace="kube-system")).items
    return {one.metadata.name.removeprefix("bootstrap-token-") for one in found}
