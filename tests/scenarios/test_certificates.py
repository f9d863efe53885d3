"""Certificate signing requests in a whole cluster, in virtual time."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from msgspec.structs import replace

from apiserver_stub.storage.interface import Write
from controller_manager.common.api.certificates import (
    API_CLIENT,
    APPROVED,
    DENIED,
    FAILED,
    LEGACY_UNKNOWN,
    NODE_CLIENT,
    NODE_SERVING,
    REQUESTS,
    CertificateSigningRequest,
    RequestCondition,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.rbac import CLUSTER_ROLE_BINDINGS, RoleBinding, RoleRef, Subject
from controller_manager.common.api.rbac import GROUP as RBAC
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving.tls import KeyPair
from controller_manager.framework import Client, ConfigError
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.certificates import (
    CLIENT_USAGES,
    SERVER_USAGES,
    authority,
    hosts,
    key_of_kind,
    request_pem,
    signing_request,
    write_authority,
)
from controllers import certificate_approving, certificate_cleaning, certificate_signing

SPECS = (*certificate_approving.SPECS, *certificate_cleaning.SPECS, *certificate_signing.SPECS)

pytestmark = pytest.mark.virtual

SIGNING = "--controllers=certificatesigningrequest-signing-controller"
APPROVING = "--controllers=csrapproving"
JSON = "--cluster-api-content-type=application/json"
CLEANING = "--controllers=csrcleaner"
ALONE = "--leader-elect=false"
NODE = Certificate("system:node:n1", ("system:nodes",))
NEWCOMER = Certificate("system:bootstrap:abcdef", ("system:bootstrappers",))
HOUR = 3600.0


async def manage(cluster: Cluster, *flags: str, faults: float = 0.0) -> Replica:
    return await cluster.manage(*flags, specs=SPECS, faults=faults)


async def decide(client: Client, name: str, verdict: str = APPROVED) -> CertificateSigningRequest:
    request = await client.get(REQUESTS, Key("", name))
    conditions = (*request.status.conditions, RequestCondition(type=verdict, status="True", reason="Test"))
    judged = replace(request, status=replace(request.status, conditions=conditions))
    return await client.update(REQUESTS, judged, subresource="approval")


async def left_over(cluster: Cluster, request: CertificateSigningRequest) -> None:
    """Store a request for the legacy signer, as API versions that accepted such requests did."""
    name, storage = request.metadata.name, "certificatesigningrequests.certificates.k8s.io"
    other = "example.org/other"
    await cluster.client.create(REQUESTS, replace(request, spec=replace(request.spec, signer_name=other)))
    row = cluster.api.store.get(storage, name)
    assert row is not None
    data = row.data.replace(other.encode(), LEGACY_UNKNOWN.encode())
    await cluster.api.store.commit(Write(storage, name, row.revision, data))


async def approved(cluster: Cluster, request: CertificateSigningRequest) -> CertificateSigningRequest:
    """Approve a request and return it once all controllers are done."""
    if request.spec.signer_name == LEGACY_UNKNOWN:
        await left_over(cluster, request)
    else:
        await cluster.client.create(REQUESTS, request)
    await decide(cluster.client, request.metadata.name)
    await cluster.settle()
    return await look(cluster, request.metadata.name)


async def look(cluster: Cluster, name: str) -> CertificateSigningRequest:
    return await cluster.client.get(REQUESTS, Key("", name))


def signed(request: CertificateSigningRequest) -> x509.Certificate:
    return x509.load_pem_x509_certificate(request.status.certificate)


def failure(request: CertificateSigningRequest) -> str:
    condition = request.condition(FAILED)
    assert condition is not None
    assert condition.status == "True"
    assert condition.reason == "SignerValidationFailure"
    assert not request.status.certificate
    return condition.message


async def test_approved_request_is_signed(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        pair = authority()
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, pair))
        request = await approved(cluster, signing_request("r"))
        certificate = signed(request)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(pair.certificate))
        assert [one.type for one in request.status.conditions] == [APPROVED]
        assert certificate.public_key() == key_of_kind().public_key()


@pytest.mark.flag("cluster-signing-cert-file", "cluster-signing-key-file")
@pytest.mark.parametrize("verdict", ["", DENIED])
async def test_unapproved_or_denied_request_is_not_signed(tmp_path: Path, verdict: str) -> None:
    async with Cluster() as cluster:
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, authority()))
        await cluster.client.create(REQUESTS, signing_request("r"))
        if verdict:
            await decide(cluster.client, "r", verdict)
        await cluster.advance(HOUR)
        assert not (await look(cluster, "r")).status.certificate
        if not verdict:
            await decide(cluster.client, "r")
            await cluster.settle()
            assert (await look(cluster, "r")).status.certificate


async def test_request_for_unknown_signer_is_left_alone(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, authority()))
        request = await approved(cluster, signing_request("r", signer="example.com/mine"))
        assert request.status.conditions == (request.condition(APPROVED),)
        assert not request.status.certificate


REQUESTS_OF = {
    API_CLIENT: ("apiserver-client", request_pem("jane", ["dev"]), CLIENT_USAGES),
    NODE_CLIENT: ("node-agent-client", request_pem(), CLIENT_USAGES),
    NODE_SERVING: ("node-agent-serving", request_pem(names=hosts("n1", "10.0.0.1")), SERVER_USAGES),
    LEGACY_UNKNOWN: ("legacy-unknown", request_pem("anything", []), ("code signing",)),
}


@pytest.mark.flag(
    "cluster-signing-apiserver-client-cert-file",
    "cluster-signing-apiserver-client-key-file",
    "cluster-signing-node-agent-client-cert-file",
    "cluster-signing-node-agent-client-key-file",
    "cluster-signing-node-agent-serving-cert-file",
    "cluster-signing-node-agent-serving-key-file",
    "cluster-signing-legacy-unknown-cert-file",
    "cluster-signing-legacy-unknown-key-file",
)
@pytest.mark.parametrize("chosen", REQUESTS_OF)
async def test_signer_without_own_authority_signs_nothing(tmp_path: Path, chosen: str) -> None:
    async with Cluster() as cluster:
        pair = authority(number=1)
        write_authority(tmp_path, pair)
        prefix = f"--cluster-signing-{REQUESTS_OF[chosen][0]}"
        flags = f"{prefix}-cert-file={tmp_path / 'ca.crt'}", f"{prefix}-key-file={tmp_path / 'ca.key'}"
        await manage(cluster, SIGNING, ALONE, *flags)
        for number, (signer, (_, pem, usages)) in enumerate(REQUESTS_OF.items()):
            request = await approved(cluster, signing_request(f"r-{number}", pem, signer=signer, usages=usages))
            assert bool(request.status.certificate) is (signer == chosen)
            assert request.condition(FAILED) is None
            if signer == chosen:
                signed(request).verify_directly_issued_by(x509.load_pem_x509_certificate(pair.certificate))


@pytest.mark.flag("cluster-signing-duration")
async def test_certificate_duration_is_capped_by_flag(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        files = write_authority(tmp_path, authority())
        await manage(cluster, SIGNING, ALONE, *files, "--cluster-signing-duration=2h")
        for seconds, lasts in ((None, 7200), (600, 600), (3600, 3600), (90_000, 7200)):
            request = await approved(cluster, signing_request(f"r-{seconds}", seconds=seconds))
            asked = request.condition(APPROVED)
            assert asked is not None
            left = (signed(request).not_valid_after_utc - utc_now()).total_seconds()
            assert lasts - 5 < left <= lasts


async def test_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        end = utc_now().replace(microsecond=0) + timedelta(hours=3)
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, authority(end=end)))
        assert signed(await approved(cluster, signing_request("r"))).not_valid_after_utc == end


async def test_expired_authority_signs_nothing_until_renewed(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        pair = authority(end=utc_now() + timedelta(hours=1))
        replica = await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, pair))
        await cluster.advance(2 * HOUR)
        request = await approved(cluster, signing_request("r"))
        assert request.status.conditions == (request.condition(APPROVED),)
        assert not request.status.certificate
        write_authority(tmp_path, authority())
        await cluster.advance(61)
        assert (await look(cluster, "r")).status.certificate
        assert not replica.has_ended


async def test_replaced_authority_is_loaded_unless_files_are_broken(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        first, second = authority(number=1, name="first"), authority(number=2, name="second")
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, first))

        async def issuer(name: str) -> str:
            return signed(await approved(cluster, signing_request(name))).issuer.rfc4514_string()

        assert await issuer("a") == "CN=first"
        (tmp_path / "ca.crt").write_bytes(second.certificate)  # its key is not written yet
        assert await issuer("b") == "CN=first"
        (tmp_path / "ca.key").write_bytes(b"-----BEGIN PRIV")
        assert await issuer("c") == "CN=first"
        (tmp_path / "ca.key").unlink()
        assert await issuer("d") == "CN=first"
        (tmp_path / "ca.key").write_bytes(second.key)
        assert await issuer("e") == "CN=second"


async def test_authority_behind_replaced_symlink_is_reloaded(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        for number, name in enumerate(("first", "second")):
            write_authority(tmp_path / name, authority(number=number, name=name))
        (tmp_path / "data").symlink_to("first")
        folder = tmp_path / "data"
        files = f"--cluster-signing-cert-file={folder}/ca.crt", f"--cluster-signing-key-file={folder}/ca.key"
        await manage(cluster, SIGNING, ALONE, *files)
        assert signed(await approved(cluster, signing_request("a"))).issuer.rfc4514_string() == "CN=first"
        (tmp_path / "next").symlink_to("second")
        (tmp_path / "next").rename(folder)
        assert signed(await approved(cluster, signing_request("b"))).issuer.rfc4514_string() == "CN=second"


REFUSED: dict[str, tuple[Callable[[], CertificateSigningRequest], str]] = {
    "subject": (lambda: signing_request("r", request_pem("jane")), "common name"),
    "names": (lambda: signing_request("r", request_pem(names=hosts("n1"))), "must have no DNS subjectAltName"),
    "usages": (lambda: signing_request("r", usages=("client auth",)), "the usages must be"),
    "contradiction": (
        lambda: signing_request("r", signer=LEGACY_UNKNOWN, usages=("encipher only",)),
        "need the usage key agreement",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_request_fails_once_with_reason(tmp_path: Path, case: str) -> None:
    make, reason = REFUSED[case]
    async with Cluster() as cluster:
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, authority()))
        request = await approved(cluster, make())
        assert reason in failure(request)
        await cluster.advance(HOUR)
        assert (await look(cluster, "r")).metadata.resource_version == request.metadata.resource_version


async def test_unmodelled_fields_survive_signing(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        await manage(cluster, SIGNING, ALONE, *write_authority(tmp_path, authority()))
        await cluster.client.create(REQUESTS, signing_request("r"))
        await cluster.client.patch(REQUESTS, Key("", "r"), {"metadata": {"annotations": {"example.org/a": "b"}}})
        await decide(cluster.client, "r")
        await cluster.settle()
        request = await look(cluster, "r")
        assert request.status.certificate
        assert request.metadata.annotations == {"example.org/a": "b"}


class Reviews:
    """Answers access reviews as JSON in place of the API server; `allowed` has users and subresources."""

    def __init__(self, cluster: Cluster) -> None:
        self.allowed: set[tuple[str, str]] = set()
        self.asked: list[dict[str, Any]] = []
        cluster.serve_beside("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.answer)

    async def answer(self, request: Request) -> Response:
        review = json.loads(request.body)
        spec = review["spec"]
        self.asked.append(spec)
        review["status"] = {"allowed": (spec["user"], spec["resourceAttributes"]["subresource"]) in self.allowed}
        return Response(201, {"content-type": "application/json"}, json.dumps(review).encode())


async def test_node_client_certificate_renewal_is_auto_approved(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        reviews = Reviews(cluster)
        reviews.allowed.add((NODE.common_name, "selfnodeclient"))
        await manage(
            cluster, "--controllers=csrapproving,csrsigning", ALONE, JSON, *write_authority(tmp_path, authority())
        )
        await cluster.connect(NODE).create(REQUESTS, signing_request("r"))
        await cluster.settle()
        request = await look(cluster, "r")
        verdict = request.condition(APPROVED)
        assert verdict is not None
        assert (verdict.reason, verdict.status) == ("AutoApproved", "True")
        assert "SubjectAccessReview" in verdict.message
        assert request.status.certificate
        (asked,) = reviews.asked
        assert asked["groups"] == ["system:nodes", "system:authenticated"]
        assert asked["resourceAttributes"] == {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "subresource": "selfnodeclient",
            "verb": "create",
        }


async def test_new_node_needs_nodeclient_permission_for_approval(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        reviews = Reviews(cluster)
        reviews.allowed.add((NEWCOMER.common_name, "nodeclient"))
        role = RoleRef(api_group=RBAC, kind="ClusterRole", name="system:node-bootstrapper")
        group = Subject(kind="Group", api_group=RBAC, name=NEWCOMER.organizations[0])
        binding = RoleBinding(metadata=ObjectMeta(name="newcomers"), role_ref=role, subjects=(group,))
        await cluster.client.create(CLUSTER_ROLE_BINDINGS, binding)
        await manage(cluster, APPROVING, ALONE, JSON)
        await cluster.connect(NEWCOMER).create(REQUESTS, signing_request("r"))
        await cluster.settle()
        assert (await look(cluster, "r")).condition(APPROVED) is not None


async def test_unauthorized_requester_is_rechecked_until_allowed(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        reviews = Reviews(cluster)
        await manage(cluster, APPROVING, ALONE, JSON)
        await cluster.connect(NODE).create(REQUESTS, signing_request("r"))
        await cluster.advance(HOUR)
        assert (await look(cluster, "r")).status.conditions == ()
        assert [one["resourceAttributes"]["subresource"] for one in reviews.asked[:2]] == [
            "selfnodeclient",
            "nodeclient",
        ]
        assert 10 < len(reviews.asked) < 60
        reviews.allowed.add((NODE.common_name, "selfnodeclient"))
        await cluster.advance(301)
        assert (await look(cluster, "r")).condition(APPROVED) is not None


@pytest.mark.parametrize(
    "request_",
    [
        signing_request("r", request_pem(names=hosts("n1")), signer=NODE_SERVING, usages=SERVER_USAGES),
        signing_request("r", signer=API_CLIENT),
        signing_request("r", signer=NODE_SERVING),
        signing_request("r", request_pem(names=hosts("n1"))),
        signing_request("r", usages=("client auth",)),
    ],
    ids=["serving", "api-client", "nameless", "names", "usages"],
)
async def test_other_requests_are_not_auto_approved(request_: CertificateSigningRequest) -> None:
    async with Cluster() as cluster:
        reviews = Reviews(cluster)
        await manage(cluster, APPROVING, ALONE, JSON)
        await cluster.connect(NODE).create(REQUESTS, request_)
        await cluster.advance(HOUR)
        assert (await look(cluster, "r")).status.conditions == ()
        assert reviews.asked == []


@pytest.mark.parametrize(
    ("verdicts", "hours"), [((), 24), ((APPROVED,), 24), ((DENIED,), 1)], ids=["pending", "approved", "denied"]
)
async def test_unsigned_requests_are_deleted_after_their_time(verdicts: tuple[str, ...], hours: float) -> None:
    async with Cluster() as cluster:
        await manage(cluster, CLEANING, ALONE)
        await cluster.client.create(REQUESTS, signing_request("r"))
        for verdict in verdicts:
            await decide(cluster.client, "r", verdict)
        await cluster.advance(hours * HOUR - 60)
        await look(cluster, "r")
        await cluster.advance(60)
        with pytest.raises(NotFound):
            await look(cluster, "r")


@pytest.mark.parametrize(
    ("pem", "seconds", "lasts"),
    [(request_pem(), None, HOUR), (request_pem("jane"), None, HOUR), (request_pem(), 600, 600)],
    ids=["issued", "failed", "expired"],
)
async def test_issued_requests_are_deleted_after_their_time(
    tmp_path: Path, pem: bytes, seconds: int | None, lasts: float
) -> None:
    async with Cluster() as cluster:
        await manage(cluster, "--controllers=csrcleaner,csrsigning", ALONE, *write_authority(tmp_path, authority()))
        await approved(cluster, signing_request("r", pem, seconds=seconds))
        await cluster.advance(lasts - 10)
        await look(cluster, "r")
        await cluster.advance(10)
        with pytest.raises(NotFound):
            await look(cluster, "r")


async def test_invalid_signing_files_fail_startup(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        first, second = authority(number=1), authority(number=2)
        files = write_authority(tmp_path, KeyPair(first.certificate, second.key))
        sentence = (
            "--cluster-signing-cert-file and --cluster-signing-key-file: "
            f"{tmp_path}/ca.crt and {tmp_path}/ca.key: the key is not the one of the certificate"
        )
        with pytest.raises(ConfigError, match=re.escape(sentence)):
            await manage(cluster, SIGNING, ALONE, *files)
        (tmp_path / "ca.key").unlink()
        with pytest.raises(ConfigError, match=r"--cluster-signing-key-file: .*ca\.key: No such file"):
            await manage(cluster, SIGNING, ALONE, *files)
        await manage(cluster, "--controllers=-csrsigning,*", ALONE, *files)  # no controller reads them
