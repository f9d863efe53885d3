"""All controllers with hostile objects and hostile answers of APIs.

Invariants:
- no controller crashes, and all continue with other objects;
- a cluster without changes gets no writes, however often objects are reconciled;
- no user gets an admin certificate, and requests that cannot be signed are marked as failed;
- memory about objects is freed with them.
"""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID
from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS
from controller_manager.common.api.certificates import (
    API_CLIENT,
    APPROVED,
    FAILED,
    LEGACY_UNKNOWN,
    NODE_CLIENT,
    NODE_SERVING,
    REQUESTS,
)
from controller_manager.common.api.core import CONFIG_MAPS
from controller_manager.common.api.errors import Forbidden, Invalid
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import Context
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.certificates import (
    CLIENT_USAGES,
    authority,
    key_of_kind,
    request_pem,
    signing_request,
    write_authority,
)
from controller_manager.testing.cluster import RESTLESS
from controller_manager.testing.metering import Meter, Workload, autoscaler
from controllers.garbage_collector.controller import SPECS, GarbageCollector, GarbageCollectorOptions

pytestmark = pytest.mark.virtual

CORE, HERE = "/api/v1", "/api/v1/namespaces/default"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HOUR = 3600.0
Tree = dict[str, Any]


async def send(cluster: Cluster, method: str, path: str, body: object = None) -> Tree:
    data = b"" if body is None else json.dumps(body).encode()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer: Tree = json.loads(await cluster.client.raw(Call(method, path, body=data, content_type=kind)))
    return answer


async def create(cluster: Cluster, path: str, name: str, *, status: object = None, **parts: object) -> Tree:
    """Create an object with `metadata` and `status`, if they are given."""
    metadata = {"name": name, **parts.pop("metadata", {})}
    made = await send(cluster, "POST", path, {**parts, "metadata": metadata})
    return made if status is None else await send(cluster, "PATCH", f"{path}/{name}/status", {"status": status})


def reference(kind: str, name: str, uid: str, version: str = "v1", **more: object) -> Tree:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, **more}


def crashes(replica: Replica) -> list[str]:
    states = [controller.state() for controller in replica.manager._controllers]
    return [f"{state.name}: {state.crash}" for state in states if state.restarts]


async def odd_nodes_and_pods(cluster: Cluster) -> None:
    torn = [
        ("Ready", "True"),
        ("Ready", "Unknown"),
        ("Odd", "Maybe"),
        ("MemoryPressure", "True"),
        ("DiskPressure", "?"),
    ]
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows"}
    for number, reported in enumerate(([("Ready", "True")], torn, [])):
        name, zone = f"n{number}", {"topology.kubernetes.io/zone": f"z{number}"}
        conditions = [
            {"type": kind, "status": status, "lastHeartbeatTime": "2999-01-01T00:00:00Z"} for kind, status in reported
        ]
        status = {"conditions": conditions, "allocatable": {"cpu": ("4", "0", "1e300")[number]}}
        await create(cluster, f"{CORE}/nodes", name, metadata={"labels": labels | zone}, status=status)
        renewed = {"holderIdentity": "", "renewTime": "1970-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}
        await create(cluster, LEASES, name, spec=renewed)
    patient = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2**63 - 1}]
    for number in range(6):
        container = {"name": "c", "image": "x", "ports": [{"name": "http", "containerPort": 8000 + number}]}
        spec = {
            "nodeName": f"n{number % 4}",
            "containers": [container],
            "tolerations": patient * (1 + 50 * (number % 2)),
        }
        ready = [{"type": "Ready", "status": status} for status in ("True", "False")[number % 2 :]]
        ips = [{"ip": f"10.1.0.{number}"}, {"ip": f"fd00::{number}"}]
        status = {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips, "conditions": ready}
        await create(
            cluster, f"{HERE}/pods", f"p{number}", metadata={"labels": {"app": "web"}}, spec=spec, status=status
        )


async def odd_services(cluster: Cluster) -> None:
    follows = {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}
    headless = {"labels": {"service.kubernetes.io/headless": "x"}}
    many = [{"name": f"p{number}", "port": 1 + number} for number in range(300)]
    specs: dict[str, Tree] = {
        "named": {"ports": [{"port": 80, "targetPort": "http"}]},
        "portless": {"clusterIP": "None", "ports": []},
        "dual": {"ipFamilyPolicy": "PreferDualStack"},
        "close": {"trafficDistribution": "PreferClose"},
        "unready": {"publishNotReadyAddresses": True},
        "many": {"ports": many},
        "mixed": {
            "ports": [{"name": "a", "port": 80, "protocol": "SCTP", "appProtocol": "x/y"}, {"name": "b", "port": 80}]
        },
    }
    for name, spec in specs.items():
        metadata = follows if name == "dual" else headless
        given = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
        await create(cluster, f"{HERE}/services", name, metadata=metadata, spec=given)
    one, two = {"name": "a", "port": 80, "appProtocol": "http"}, {"name": "b", "port": 80, "protocol": "UDP"}
    twice = [{"ip": "10.9.0.1"}, {"ip": "10.9.0.1"}]
    for name, subsets in {
        "twice": [{"addresses": twice, "ports": [{"port": 80}]}],
        "both": [{"addresses": twice[:1], "ports": [one, two]}, {"notReadyAddresses": twice, "ports": [two, one]}],
        "bare": [{"addresses": [{"ip": "fd00::1", "hostname": "h", "nodeName": "n1"}]}],
        "none": [],
    }.items():
        await create(cluster, f"{HERE}/services", name, spec={"ports": [{"port": 80}]})
        await create(cluster, f"{HERE}/endpoints", name, metadata={"annotations": {"x": "y"}}, subsets=subsets)


async def odd_owners(cluster: Cluster) -> None:
    base = (await create(cluster, f"{HERE}/configmaps", "base"))["metadata"]["uid"]
    real = reference("ConfigMap", "base", base)
    for name, owners in {
        "unknown": [reference("Nope", "x", "u1", "odd.example/v9")],
        "path": [reference("ConfigMap", "../../secrets", "u2")],
        "request": [reference("ConfigMap", "a b?c#d\r\ne", "u3")],
        "escaped": [reference("Pod", "p%2f0", "u4")],
        "twice": [real, {**real, "blockOwnerDeletion": True}],
        "renamed": [reference("ConfigMap", "other", base), real],
        "mistaken": [reference("Secret", "base", base), real],
        "hundreds": [*(reference("Nope", "x", f"h{number}") for number in range(300)), real],
    }.items():
        await create(cluster, f"{HERE}/configmaps", name, metadata={"ownerReferences": owners})
    own = (await create(cluster, f"{HERE}/configmaps", "self"))["metadata"]["uid"]
    selfish = {"ownerReferences": [reference("ConfigMap", "self", own, blockOwnerDeletion=True)]}
    await send(cluster, "PATCH", f"{HERE}/configmaps/self", {"metadata": selfish})
    outside = {"ownerReferences": [real]}
    await create(cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles", "outside", metadata=outside, rules=[])


async def odd_autoscalers(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec: Tree = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await create(cluster, "/apis/apps/v1/namespaces/default/deployments", "d", spec=spec)
    metric = {"metric": {"name": "q?x#y\r\nz"}, "target": {"type": "Value", "value": "1n"}}
    for number, target in enumerate(
        ("apps/v1 Deployment d", "batch/v1 Job p1", "no/v1 Nope x", "v1 ReplicationController d")
    ):
        version, kind, name = target.split()
        spec = {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]}},
        }
        await create(cluster, HPAS, f"h{number}", spec=spec)


async def odd_namespaces(cluster: Cluster) -> None:
    for name in ("kept", "stubborn"):
        await create(cluster, f"{CORE}/namespaces", name, metadata={"finalizers": ["odd.example/keep"]})
    await cluster.settle()
    frozen = {"data": {"ca.crt": "x" * 100_000}, "immutable": True}
    await send(cluster, "PATCH", f"{CORE}/namespaces/stubborn/configmaps/kube-root-ca.crt", frozen)
    await send(cluster, "DELETE", f"{CORE}/namespaces/kept")


async def test_odd_objects_cause_no_writes_when_nothing_changes(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        flags = ("--leader-elect=false", *write_authority(tmp_path, authority()))
        replica = await cluster.manage(*flags, strict=False)  # the server rejects requests for owners with such names
        await cluster.settle()
        for make in (odd_nodes_and_pods, odd_services, odd_owners, odd_autoscalers, odd_namespaces):
            await make(cluster)
        await cluster.sleep(HOUR)
        changed: Counter[str] = Counter()

        def note(changes: Sequence[Change]) -> None:
            changed.update(f"{change.row.resource} {change.row.key}" for change in changes)

        cluster.api.store.subscribe(note)
        await cluster.sleep(HOUR)
        allowed = RESTLESS | {"events"}
        assert [what for what in changed if what.partition(" ")[0] not in allowed] == []
        assert max(changed.values(), default=0) <= 12  # repeated events, at most every five minutes
        assert crashes(replica) == []

        # Other objects are handled as usual.
        await create(cluster, f"{CORE}/namespaces", "fresh")
        await send(cluster, "PATCH", f"{HERE}/services/named", {"spec": {"selector": {"app": "gone"}}})
        await cluster.settle()
        assert (await cluster.client.get(CONFIG_MAPS, Key("fresh", "kube-root-ca.crt"))).data != {}
        assert (await send(cluster, "GET", f"{HERE}/endpoints/named")).get("subsets", []) == []


def usage(value: object) -> bytes:
    items = [
        {"metadata": {"name": f"web-{number}"}, "containers": [{"name": "main", "usage": {"cpu": value}}]}
        for number in range(10)
    ]
    return json.dumps({"items": items}).encode()


def error_status(message: str) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": "R" * 1000, "code": 500}).encode()


ANSWERS: Mapping[str, tuple[int, bytes]] = {
    "not a number": (200, usage(float("nan"))),
    "endless": (200, b'{"items":[{"metadata":{"name":"web-0"},"containers":[{"name":"m","usage":{"cpu":1e999}}]}]}'),
    "huge": (200, usage(1e308)),
    "negative": (200, usage("-5")),
    "hugely negative": (200, usage(-1e300)),
    "long": (200, usage("9" * 5000)),
    "true": (200, usage(value=True)),
    "deep": (200, b'{"items":[' * 50_000),
    "deeply nested error": (500, b'{"details":{"causes":[' * 50_000),
    "large": (200, b'{"items":[],"more":"' + b"x" * 30_000_000 + b'"}'),
    "nothing": (200, b""),
    "no text": (200, b"\xff\0\xfe"),
    "elsewhere": (302, b""),
    "no status": (999, b"{}"),
    "talkative": (500, error_status("M" * 3_000_000)),
    "lines": (500, error_status("one\ntwo\0three\u2028")),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_invalid_metrics_answers_do_not_scale_out_of_bounds(name: str) -> None:
    async with Cluster() as cluster:
        web = Workload(cluster, Meter(cluster), "web", load=300)
        await web.create(3)
        code, body = ANSWERS[name]

        async def answer(_: Request) -> Response:
            return Response(code, {"content-type": "application/json", "location": "http://elsewhere"}, body)

        cluster.serve_beside("/apis/metrics.k8s.io", answer)
        replica = await cluster.manage("--leader-elect=false", "--controllers=horizontalpodautoscaling")
        await cluster.client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(web))
        await cluster.advance(60)
        found = await cluster.client.get(HORIZONTAL_POD_AUTOSCALERS, Key("default", "web"))
        assert 1 <= await web.replicas() <= found.spec.max_replicas
        assert {one.type for one in found.status.conditions} >= {"AbleToScale", "ScalingActive"}
        assert all(len(one.message) < 2000 for one in found.status.conditions)
        assert crashes(replica) == []


def of_another_version() -> bytes:
    der = x509.load_pem_x509_csr(request_pem()).public_bytes(Encoding.DER)
    return pem_of(der.replace(b"\x02\x01\x00", b"\x02\x01\x02", 1))


def with_exotic_name() -> bytes:
    key, party = key_of_kind(), bytes.fromhex("3006a504a1020c00")
    exotic = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, party)
    subject = x509.load_pem_x509_csr(request_pem()).subject
    builder = x509.CertificateSigningRequestBuilder(subject).add_extension(exotic, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def pem_of(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE REQUEST-----\n%s\n-----END CERTIFICATE REQUEST-----\n" % b64encode(der)


async def ask(cluster: Cluster, name: str, pem: bytes, signer: str, **spec: object) -> Tree:
    spec = {"request": b64encode(pem).decode(), "signerName": signer, "usages": list(CLIENT_USAGES), **spec}
    made = await create(cluster, CSRS, name, spec=spec)
    verdict = {"type": APPROVED, "status": "True", "reason": "Test"}
    await send(cluster, "PUT", f"{CSRS}/{name}/approval", {**made, "status": {"conditions": [verdict]}})
    return made


@pytest.mark.parametrize("make", [of_another_version, lambda: request_pem()[:-60]], ids=["version", "torn"])
@pytest.mark.parametrize("signer", [NODE_CLIENT, API_CLIENT])
async def test_malformed_certificate_requests_are_rejected(make: Callable[[], bytes], signer: str) -> None:
    """The server checks this before permissions."""
    async with Cluster() as cluster:
        with pytest.raises(Invalid) as caught:
            await ask(cluster, "r", make(), signer)
        assert [(one.field, one.reason) for one in caught.value.details.causes] == [
            ("spec.request", "FieldValueInvalid")
        ]


async def test_unsignable_certificate_request_fails_at_once(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(
            "--leader-elect=false", "--controllers=csrsigning,csrapproving", *write_authority(tmp_path, authority())
        )
        await cluster.settle()
        await ask(cluster, "exotic", with_exotic_name(), NODE_CLIENT)
        await ask(cluster, "last", request_pem(), NODE_CLIENT, expirationSeconds=2**31 - 1)
        await cluster.settle()
        found = await cluster.client.get(REQUESTS, Key("", "exotic"))
        assert found.condition(FAILED)
        assert not found.status.certificate
        assert (await cluster.client.get(REQUESTS, Key("", "last"))).status.certificate
        assert crashes(replica) == []


async def test_admin_certificates_and_false_requesters_are_rejected() -> None:
    async with Cluster() as cluster:
        for organizations in (["system:masters"], ["people", "system:masters"]):
            with pytest.raises(Forbidden, match="system:masters"):
                await ask(cluster, "admin", request_pem("jane", organizations), API_CLIENT)
        forged = {"username": "system:node:n1", "groups": ["system:nodes"], "uid": "u", "extra": {"a": ["b"]}}
        made = await ask(cluster, "forged", request_pem("jane", ["people"]), API_CLIENT, **forged)
        assert made["spec"]["username"] == "kubernetes-admin"
        assert "system:nodes" not in made["spec"]["groups"]
        with pytest.raises(Invalid, match=r"spec\.signerName"):
            await ask(cluster, "other", request_pem("jane", ["people"]), LEGACY_UNKNOWN)
        twice = request_pem("jane", ["people"])[:-60] + b"\n" + request_pem("jane", ["system:masters"])
        with pytest.raises(Forbidden):  # PEM readers differ about data between blocks
            await ask(cluster, "twice", twice, API_CLIENT)


@pytest.mark.parametrize("signer", [NODE_CLIENT, NODE_SERVING])
async def test_node_can_request_certificates_only_for_itself(signer: str) -> None:
    async with Cluster() as cluster:
        node = cluster.connect(Certificate("system:node:n1", ("system:nodes",)))
        other = signing_request("other", request_pem("system:node:n2", ["system:nodes"]), signer=signer)
        with pytest.raises(Forbidden, match="only create a node CSR with CN=system:node:n1"):
            await node.create(REQUESTS, other)
        await node.create(REQUESTS, signing_request("own", request_pem(), signer=signer))
        await cluster.connect(Certificate("bootstrap", ("system:nodes", "system:masters"))).create(REQUESTS, other)


@pytest.mark.parametrize("nonsense", ["../../secrets", "a\r\nb", "p%2f0"])
async def test_invalid_owner_name_does_not_protect_other_dependents(nonsense: str) -> None:
    async with Cluster() as cluster:
        names = ("first", "victim", "last")
        for name, claimed in zip(names, (nonsense, "gone", nonsense), strict=True):
            owners = [reference("ConfigMap", claimed, "u")]
            await create(cluster, f"{HERE}/configmaps", name, metadata={"ownerReferences": owners})
        # The server rejects requests for owners with such names.
        await cluster.manage("--leader-elect=false", "--controllers=garbagecollector", strict=False)
        await cluster.advance(30)
        left = {one.metadata.name for one in (await cluster.client.list(CONFIG_MAPS, "default")).items}
        assert left == {"first", "last"}


async def test_garbage_collector_forgets_kinds_of_deleted_objects() -> None:
    made: list[GarbageCollector] = []

    def remember(context: Context, options: GarbageCollectorOptions) -> GarbageCollector:
        made.append(GarbageCollector(context, options))
        return made[-1]

    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=(replace(SPECS[0], reconciler=remember),))
        await cluster.settle()

        async def come(number: int) -> None:
            owner = reference("Nope", "x", f"u{number}", "odd.example/v9")
            await create(cluster, f"{HERE}/configmaps", f"c{number}", metadata={"ownerReferences": [owner]})

        await all_of(*map(come, range(100)))
        await cluster.settle()
        (collector,) = made
        assert len(collector._unknown_kinds) == 100
        await send(cluster, "DELETE", f"{HERE}/configmaps")
        await cluster.advance(60)
        assert len(collector._unknown_kinds) == 0
        assert not any(node.claims for node in collector._graph)
