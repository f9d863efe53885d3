"""The trust bundle of the API server's signer in a whole cluster, in virtual time."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from controller_manager.common.api.certificates import TRUST_BUNDLES, ClusterTrustBundle, ClusterTrustBundleSpec
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.trust_bundle_publisher import SIGNER, SPECS, name_of

pytestmark = pytest.mark.virtual
GATE = "--feature-gates=ClusterTrustBundle=true"
SERVED = (GATE, "--runtime-config=api/beta=true")
ON = ("--leader-elect=false", GATE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_text(FIRST)
    return path


def authority(seed: int) -> str:
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2046, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), seed, begin, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, None).public_bytes(Encoding.PEM).decode()


FIRST, SECOND = authority(1), authority(2)


def put(file: Path, text: str) -> None:
    file.write_text(text)


async def bundles(cluster: Cluster, version: str = "v1beta1") -> dict[str, str]:
    found = await cluster.client.list(replace(TRUST_BUNDLES, version=version))
    return {one.metadata.name: one.spec.trust_bundle for one in found.items}


async def make(cluster: Cluster, name: str, signer: str, text: str) -> None:
    spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
    await cluster.client.create(TRUST_BUNDLES, ClusterTrustBundle(metadata=ObjectMeta(name=name), spec=spec))


async def test_bundle_is_published_and_replaces_old_ones(file: Path) -> None:
    async with Cluster(SERVED) as cluster:
        await make(cluster, "mine", "", SECOND)
        await make(cluster, f"{SIGNER.replace('/', ':')}:old", SIGNER, SECOND)
        page = "--authorization-always-allow-paths=/metrics"
        replica = await cluster.manage(*ON, page, f"--root-ca-file={file}", specs=SPECS)
        await cluster.settle()
        assert await bundles(cluster) == {name_of(FIRST): FIRST, "mine": SECOND}
        put(file, SECOND)
        await cluster.advance(15)
        assert await bundles(cluster) == {name_of(SECOND): SECOND, "mine": SECOND}
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(answer.body, bytes)
        assert b'clustertrustbundle_publisher_sync_total{code="200"}' in answer.body
        assert b'clustertrustbundle_publisher_sync_duration_seconds_bucket{code="200",le="0.001"}' in answer.body


async def test_edited_or_deleted_bundle_is_restored(file: Path) -> None:
    async with Cluster(SERVED) as cluster:
        await cluster.manage(*ON, f"--root-ca-file={file}", specs=SPECS)
        await cluster.settle()
        key = Key("", name_of(FIRST))
        await cluster.client.patch(TRUST_BUNDLES, key, {"spec": {"trustBundle": SECOND}})
        await cluster.settle()
        assert await bundles(cluster) == {key.name: FIRST}
        await cluster.client.delete(TRUST_BUNDLES, key)
        await cluster.settle()
        assert await bundles(cluster) == {key.name: FIRST}


@pytest.mark.parametrize(
    ("flags", "version"),
    [(("--runtime-config=api/alpha=true",), "v1alpha1"), (("--runtime-config=api/all=true",), "v1beta1")],
)
async def test_best_served_version_is_used(file: Path, flags: tuple[str, ...], version: str) -> None:
    async with Cluster((GATE, *flags)) as cluster:
        await cluster.manage(*ON, f"--root-ca-file={file}", specs=SPECS)
        await cluster.settle()
        assert await bundles(cluster, version) == {name_of(FIRST): FIRST}


async def test_unserved_bundles_cause_no_errors(file: Path) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, f"--root-ca-file={file}", specs=SPECS)
        await cluster.advance(200)


@pytest.mark.virtual(seeds=200)
async def test_exactly_one_bundle_exists_after_faults(file: Path) -> None:
    flags = (
        *ON,
        f"--root-ca-file={file}",
        "--controllers=kube-apiserver-serving-clustertrustbundle-publisher-controller",
    )
    async with Cluster(SERVED) as cluster:
        faults = FaultInjector(cluster, await cluster.manage(*flags, faults=RATE), flags, ("/apis",))
        text = FIRST
        for round_ in range(12):
            act = int(random_source().uniform(0, 4))
            if act == 0:
                put(file, text := FIRST if round_ % 2 else SECOND)
            elif act == 1:
                for name in await bundles(cluster):
                    await cluster.client.delete(TRUST_BUNDLES, Key("", name))
            elif act == 2:
                await faults.kill()
            elif f"{SIGNER.replace('/', ':')}:x" not in await bundles(cluster):
                await make(cluster, f"{SIGNER.replace('/', ':')}:x", SIGNER, SECOND)
            await cluster.sleep(random_source().uniform(0, 20))
        await faults.heal()
        await cluster.sleep(1500)
        await cluster.settle()
        assert await bundles(cluster) == {name_of(text): text}
