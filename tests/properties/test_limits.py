"""The cost of the largest requests: none blocks the event loop.

Each of these took the server from half a second to minutes, or gigabytes, when it was written.
"""

import asyncio
import gc
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from time import process_time
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.leader.elector import Elector, LeaderMetrics
from controller_manager.framework.leader.lease import LeaseTimings
from tests.pace import slowness

STRANGER = Certificate("somebody", ())
CONFIGS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NODES, JOBS = "/api/v1/nodes", "/apis/batch/v1/namespaces/default/cronjobs"
QUOTAS, SERVICES = "/api/v1/namespaces/default/resourcequotas", "/api/v1/namespaces/default/services"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
SCALERS = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
LONGEST_HOLD = 0.1  # seconds of CPU of this process, twice the documented limit
PATIENCE = 6.0  # seconds of CPU for all of a request

LONG = "k" * 1_000_000
RECORD = {
    "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
    "fieldsV1": {f"f:{number}": {} for number in range(100_000)},
}  # fmt: skip
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old"}}
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
TAGS = "".join(f"%TAG !a{n}! tag:x,2000:\n" for n in range(90_000)) + "---\na: 1\n"


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def config_map(**more: Any) -> bytes:
    return encoded({**CONFIG, **more})


def csr(pem: bytes) -> bytes:
    spec = {"signerName": "example.com/a", "usages": ["client auth"], "request": b64encode(pem).decode()}
    return encoded({"metadata": {"name": "a"}, "spec": spec})


BEGIN, END = b"\n-----BEGIN CERTIFICATE REQUEST-----", b"\n-----END CERTIFICATE REQUEST-----\n"
TEMPLATE = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}


def policy(count: int, form: str, around: str) -> bytes:
    exceptions = [form.format(n >> 16 & 255, n >> 8 & 255, n & 255) for n in range(count)]
    block = {"cidr": around, "except": exceptions}
    return encoded(
        {"metadata": {"name": "a"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": block}]}]}}
    )


BODIES = {
    "a record of many fields": ("PUT", JSON, config_map(metadata={"name": "old", "managedFields": [RECORD]})),
    "names to retain": ("PATCH", STRATEGIC, encoded({
        "data": {"$retainKeys": [str(n) for n in range(45_000)], **{str(n): "" for n in range(45_000)}}
    })),
    "one element again and again": ("PATCH", STRATEGIC, encoded({
        "metadata": {"ownerReferences": [{"uid": "u", **{str(n): 0 for n in range(50_000)}}, *[{"uid": "u"}] * 40_000]}
    })),
    "insertions at the front": ("PATCH", JSON_PATCH, encoded([
        {"op": "add", "path": "/x", "value": [0] * 100_000}, *[{"op": "add", "path": "/x/0", "value": 0}] * 9_000
    ])),
    "copies of nothing": ("PATCH", JSON_PATCH, encoded([
        {"op": "add", "path": "/x", "value": []}, *[{"op": "copy", "from": "/x", "path": "/x/-"}] * 100
    ])),
    "merged again and again": ("PUT", YAML, MERGES.encode()),
    "tags nobody uses": ("PUT", YAML, TAGS.encode()),
    "wrong values below a long key": ("POST " + REQUESTS, JSON, encoded(
        {"metadata": {"name": "a"}, "spec": {"extra": {LONG: [0] * 100_000}}}
    )),
    "repeated keys below a long key": ("PUT", JSON, b'{"data":{"%b":{%b}}}' % (
        LONG.encode(), b",".join(b'"%d":1,"%d":1' % (n, n) for n in range(50_000))
    )),
    "a request in many beginnings": ("POST " + REQUESTS, JSON, csr(BEGIN * 45_000 + END)),
    "a request in many blocks": ("POST " + REQUESTS, JSON, csr((BEGIN + b"\nA: b\n!" + END) * 20_000)),
    "a request with many headers": ("POST " + REQUESTS, JSON, csr(BEGIN + b"\n" + b":\n" * 800_000 + b"AAAA" + END)),
    "a request of many bytes": ("POST " + REQUESTS, JSON, csr(BEGIN + b"\n" + b"MIIB" * 400_000 + END)),
    "values that must differ": ("POST " + STORAGE_CLASSES, JSON, encoded({
        "metadata": {"name": "a"}, "provisioner": "x",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": list(map(str, range(99_000)))}]}],
    })),
    "keys that exclude each other": ("POST " + PODS, JSON, encoded({"metadata": {"name": "a"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "k", "labelSelector": {},
            "matchLabelKeys": [f"a{n}" for n in range(45_000)],
            "mismatchLabelKeys": [f"b{n}" for n in range(45_000)],
        }]}},
    }})),
    "a selector of many terms": ("POST " + DEPLOYMENTS, JSON, encoded({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}] * 18_000},
        "template": {"metadata": {"labels": {"k": "v"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})),
    "nothing, in great numbers": ("POST " + PODS, JSON, b'{"spec":{"containers":[%b{}]}}' % (b"{}," * 900_000)),
    "exceptions of a range": ("POST " + POLICIES, JSON, policy(99_000, "10.{}.{}.{}/32", "10.0.0.0/8")),
    "exceptions that are no ranges": ("POST " + POLICIES, JSON, policy(99_000, "10.{}.{}.{}", "10.0.0.0/8")),
    "as many exceptions as are not looked at in the thread": (
        "POST " + POLICIES, JSON, policy(950, "10.{}.{}.{}/32", "10.0.0.0/8")
    ),
    "ranges of a node": ("POST " + NODES, JSON, encoded({
        "metadata": {"name": "n"}, "spec": {"podCIDRs": [f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in range(99_000)]}
    })),
    "a schedule of many minutes": ("POST " + JOBS, JSON, encoded({"metadata": {"name": "c"}, "spec": {
        "schedule": "0-59," * 400_000 + "1 * * * *", "jobTemplate": {"spec": {"template": {"spec": TEMPLATE}}},
    }})),
    "quantities in unusual forms": ("POST " + QUOTAS, JSON, encoded({
        "metadata": {"name": "q"}, "spec": {"hard": {f"count/a{n}.b": f"{n}.001e3" for n in range(80_000)}}
    })),
    "ports of a service": ("POST " + SERVICES, JSON, encoded({"metadata": {"name": "s"}, "spec": {
        "type": "NodePort", "ports": [{"name": f"p{n}", "port": n % 65535 + 1} for n in range(2_500)],
    }})),
    "such numbers in an annotation that is read": ("POST " + SCALERS, JSON, encoded({
        "metadata": {"name": "h", "annotations": {"autoscaling.alpha.kubernetes.io/metrics":
            f"[{'1.2345678901234567e-300,' * 10_000}0]"}},
        "spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    })),
    "numbers that are hard to read": ("PUT", JSON, b'{"data":{"a":[%b0]}}' % (b"1.2345678901234567e-300," * 95_000)),
    "lists within lists": ("PUT", JSON, b"[" * 1_500_000 + b"]" * 1_500_000),
    "a small patch that copies": ("PATCH", JSON_PATCH, encoded([
        {"op": "add", "path": "/data", "value": {"a": "b"}},
        *[{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(40)],
    ])),
    "a small document that refers to itself": ("PUT", YAML, (
        "a: &a [" + "1," * 40 + "]\nb: &b [" + "*a," * 40 + "]\nc: [" + "*b," * 50 + "]"
    ).encode()),
}  # fmt: skip
CROWD = {f"k{number}": "" for number in range(99_000)}
ON_CROWD = {
    "merge": ("PATCH", "application/merge-patch+json", encoded({"data": {"x": "1"}})),
    "merge strategically": ("PATCH", STRATEGIC, encoded({"data": {"x": "2"}})),
    "patch": ("PATCH", JSON_PATCH, encoded([{"op": "add", "path": "/data/x", "value": "3"}])),
    "apply": ("PATCH", APPLY, encoded({**CONFIG, "metadata": {"name": "crowd"}, "data": {"y": "1"}})),
    "replace": ("PUT", JSON, encoded({"metadata": {"name": "crowd"}, "data": {f"k{n}": "a" for n in range(99_000)}})),
    "delete": ("DELETE", JSON, b""),
}
MEDIA = (
    JSON, YAML, "application/vnd.kubernetes.protobuf", "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)  # fmt: skip


async def started() -> ApiServer:
    """A server on a memory store."""
    server = build(FLAGS.parse(("--storage-backend=memory", "--advertise-address=192.0.2.1")), Runtime("test"))
    await server.start()
    return server


class MeteredServer:
    """A server on a loop in real time, with the longest time that the loop was blocked, in CPU time of this process."""

    def __init__(self, *, runs: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._last = self.hold = 0.0
        self._server: ApiServer = self._runner.run(started())
        if runs:  # modules used beside answering, which are loaded now
            self._runner.run(self._server.load_all())
            self._background = self._runner.get_loop().create_task(self._server.run())

    def ask(self, method: str, path: str, media: str, body: bytes = b"", accept: str = JSON, **query: str) -> int:
        """The status of a request whose whole answer is read; afterwards `hold` is the longest pause it caused."""
        headers = {"content-type": media, "accept": accept}
        return self._runner.run(self._ask(Request(method, path, tuple(query.items()), headers, body, STRANGER)))

    async def _ask(self, request: Request) -> int:
        self._last, self.hold = process_time(), 0.0
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat())
            answer = await self._server.handle(request)
            size = len(answer.body) if isinstance(answer.body, bytes) else await self._streamed(answer.body, request)
            await asyncio.sleep(0.005)
            beat.cancel()
        assert size < 24 << 20
        return answer.status

    async def _streamed(self, body: AsyncIterator[bytes], request: Request) -> int:
        """The size of a body; of a watch, the size of its first chunk."""
        size = 0
        async for part in body:
            size += len(part)
            if ("watch", "1") in request.query:
                break
        if (close := getattr(body, "aclose", None)) is not None:
            await close()
        return size

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            now = process_time()
            self.hold, self._last = max(self.hold, now - self._last), now

    def close(self) -> None:
        """Stop the server and collect its garbage, so that later tests do not wait for it."""
        self._runner.run(self._server.stop())
        self._runner.close()
        del self._server
        gc.collect()


@pytest.fixture(scope="module")
def server() -> Iterator[MeteredServer]:
    """A server with the two objects that are changed, in a process with the garbage collector settings of servers."""
    made = MeteredServer()
    collect_garbage_seldom()
    assert made.ask("POST", CONFIGS, JSON, config_map()) == 201
    yield made
    made.close()


@pytest.mark.parametrize("name", BODIES)
def test_large_body_does_not_block_the_loop(server: MeteredServer, name: str) -> None:
    way, media, body = BODIES[name]
    method, _, path = way.partition(" ")
    assert len(body) <= 3 << 20
    before = process_time()
    code = server.ask(method, path or f"{CONFIGS}/old", media, body, **({} if method == "PATCH" else {"dryRun": "All"}))
    assert process_time() - before < PATIENCE * slowness()
    assert server.hold < LONGEST_HOLD * slowness()
    assert code < 500


@pytest.mark.parametrize("way", ON_CROWD)
def test_change_of_large_object_does_not_block_the_loop(server: MeteredServer, way: str) -> None:
    server.ask("POST", CONFIGS, JSON, config_map(metadata={"name": "crowd"}, data=CROWD))
    assert server.hold < LONGEST_HOLD * slowness()
    method, media, body = ON_CROWD[way]
    options = {"fieldManager": "me", "force": "1"} if media == APPLY else {}
    assert server.ask(method, f"{CONFIGS}/crowd", media, body, **options) == 200
    assert server.hold < LONGEST_HOLD * slowness()


@pytest.mark.parametrize("watches", [False, True])
@pytest.mark.parametrize("media", MEDIA)
def test_large_object_in_any_form_does_not_block_the_loop(server: MeteredServer, media: str, watches: bool) -> None:
    server.ask("POST", CONFIGS, JSON, config_map(metadata={"name": "shown"}, data=CROWD))
    if watches:
        accept = media.replace("protobuf", "protobuf;stream=watch").replace(YAML, JSON)
        query = {"watch": "1", "timeoutSeconds": "1", "fieldSelector": "metadata.name=shown"}
        code = server.ask("GET", CONFIGS, JSON, b"", accept, **query)
    else:
        code = server.ask("GET", f"{CONFIGS}/shown", JSON, b"", media)
    assert code == 200
    assert server.hold < LONGEST_HOLD * slowness()


@pytest.mark.parametrize("query", [
    {"labelSelector": "a," * 32_000}, {"fieldSelector": "metadata.name=a," * 4_000},
    {"labelSelector": "a in (" + ",".join(f"b{n}" for n in range(10_000)) + ")"},
])  # fmt: skip
def test_large_selector_does_not_block_the_loop(server: MeteredServer, query: dict[str, str]) -> None:
    assert server.ask("GET", CONFIGS, JSON, **query) in (200, 400)
    assert server.hold < LONGEST_HOLD * slowness()


PROTOBUF_2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@pytest.mark.parametrize(("path", "accept"), [
    ("/openapi/v2", JSON), ("/openapi/v2", PROTOBUF_2), ("/openapi/v3", JSON), ("/openapi/v3/api/v1", JSON),
    ("/openapi/v3/api/v1", PROTOBUF_2.replace("v2", "v3")),
])  # fmt: skip
@pytest.mark.usefixtures("server")  # and its garbage collector settings
def test_first_openapi_request_does_not_block_the_loop(path: str, accept: str) -> None:
    new = MeteredServer()
    try:
        assert new.ask("GET", path, JSON, accept=accept) == 200
        assert new.hold < LONGEST_HOLD * slowness() / 2
    finally:
        new.close()


GIZMOS = "/apis/example.com/v1/namespaces/default/gizmos"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PAIR = {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "x"}}}
PRODUCT = {"rule": "self.all(x, self.all(y, x + y >= 0))"}
NUMBERS = {"type": "array", "maxItems": 900, "items": {"type": "integer"}, "x-kubernetes-validations": [PRODUCT]}


def definition(spec: Any, columns: list[str]) -> bytes:
    """A definition of gizmos with a schema of their spec."""
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        "additionalPrinterColumns": [{"name": f"c{n}", "type": "string", "jsonPath": c} for n, c in enumerate(columns)],
    }  # fmt: skip
    names = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return encoded({"metadata": {"name": "gizmos.example.com"}, "spec": spec})


DEFINED = {  # definitions, and the spec of an object
    "many columns": (definition(FREE, [".spec" + ".a" * 100] * 3_000), {}),
    "columns of everything": (definition(FREE, ["..*..*..*..*"] * 40), {"a": [{"b": [{"c": [1, {}]}]}] * 100}),
    "many defaults": (definition({"type": "object", "properties": {f"f{n}": PAIR for n in range(3_000)}}, []), {}),
    "a rule about all pairs": (
        definition({"type": "object", "properties": {"l": NUMBERS}}, []), {"l": [1] * 900},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFINED)
@pytest.mark.usefixtures("server")  # and its garbage collector settings
def test_large_definition_does_not_block_the_loop(name: str) -> None:
    body, spec = DEFINED[name]
    server = MeteredServer(runs=True)
    gizmo = encoded({"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "a"}, "spec": spec})
    holds: dict[str, float] = {}

    def ask(what: str, *request: Any, **more: Any) -> int:
        code = server.ask(*request, **more)
        holds[what] = max(server.hold, holds.get(what, 0.0))
        return code

    try:
        assert ask("define", "POST", DEFINITIONS, JSON, body) == 201
        while ask("serve", "GET", GIZMOS, JSON) == 404:
            pass
        assert ask("create", "POST", GIZMOS, JSON, gizmo) in (201, 422)
        ask("show", "GET", f"{GIZMOS}/a", JSON, accept=TABLE)
        assert ask("list", "GET", GIZMOS, JSON, accept=TABLE) == 200
        watch = {"watch": "1", "timeoutSeconds": "1"}
        assert ask("watch", "GET", GIZMOS, JSON, accept=TABLE, **watch) == 200
        ask(
            "label",
            "PATCH",
            f"{GIZMOS}/a",
            "application/merge-patch+json",
            encoded({"metadata": {"labels": {"a": "b"}}}),
        )
        assert ask("describe", "GET", "/openapi/v3/apis/example.com/v1", JSON) == 200
    finally:
        server.close()
    limit = LONGEST_HOLD * slowness()
    assert {what: hold for what, hold in holds.items() if hold >= limit} == {}


@pytest.mark.usefixtures("server")  # and its garbage collector settings
def test_conversion_of_large_object_does_not_block_the_loop() -> None:
    """The versions have different types, so each object is fitted to both schemas."""
    entries = {"v1": {"type": "string"}, "v2": PAIR}
    manifest = json.loads(definition(FREE, []))
    (version,) = manifest["spec"]["versions"]
    manifest["spec"]["versions"] = [
        {**version, "name": name, "storage": name == "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "additionalProperties": entry}},
        }}} for name, entry in entries.items()
    ]  # fmt: skip
    spec = {f"k{number}": {} for number in range(20_000)}
    gizmo = encoded({"apiVersion": "example.com/v2", "kind": "Gizmo", "metadata": {"name": "a"}, "spec": spec})
    server, gizmos = MeteredServer(runs=True), GIZMOS.replace("/v1/", "/v2/")
    try:
        assert server.ask("POST", DEFINITIONS, JSON, encoded(manifest)) == 201
        while server.ask("GET", gizmos, JSON) == 404:
            pass
        assert server.ask("POST", gizmos, JSON, gizmo) == 201
        assert server.hold < LONGEST_HOLD * slowness()
        assert server.ask("GET", gizmos, JSON) == 200
        assert server.hold < LONGEST_HOLD * slowness()
    finally:
        server.close()


LEASE = Key("kube-system", "manager")
SHORT = LeaseTimings(lease=2.0, renew=1.5, retry=0.1)


async def test_leader_beside_server_keeps_its_lease() -> None:
    """Both run in one event loop, and the lease would be lost after 1.5 s without a renewal."""
    server = await started()

    async def lead() -> None:
        for name in ("quantities in unusual forms", "exceptions of a range", "ranges of a node"):
            way, media, body = BODIES[name]
            path = way.partition(" ")[2]
            headers, dry = {"content-type": media}, (("dryRun", "All"),)
            answer = await server.handle(Request("POST", path, dry, headers, body, STRANGER))
            assert answer.status in (201, 422)
            assert elector.leads()

    runtime = Runtime("test")
    client = Client(InProcessTransport(server.handle, certificate=STRANGER))
    elector = Elector(client, LEASE, "me", SHORT, runtime, LeaderMetrics(runtime.registry))
    await elector.run(lead)
    await server.stop()
