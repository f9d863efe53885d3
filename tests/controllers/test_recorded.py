"""All controllers against the recorded responses of a real API server (`recorded/answers.jsonl`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from controller_manager.app import catalog
from controller_manager.app.manager import Manager
from controller_manager.app.program import flag_set
from controller_manager.common.api import errors
from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS
from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS, Scale
from controller_manager.common.api.certificates import REQUESTS
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TokenRequest,
)
from controller_manager.common.api.discovery import ENDPOINT_SLICES
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.networking import IP_ADDRESSES, SERVICE_CIDRS
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.reviews import SubjectAccessReview, TokenReview
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.client.codec import Codec
from controller_manager.framework.client.discovery import resources
from controller_manager.testing import FaultyNetwork
from controller_manager.testing.certificates import authority, write_authority
from controllers.horizontal_pod_autoscaler.metrics_client import resource_samples

Tree = dict[str, Any]
JSON = {"content-type": "application/json"}
WIDGETS = Resource("recorded.example", "v1", "widgets", "Widget", True, PartialObject)
KINDS: tuple[Resource[Any], ...] = (
    NAMESPACES, NODES, PODS, SERVICES, ENDPOINTS, EVENTS, CONFIG_MAPS, SERVICE_ACCOUNTS, ENDPOINT_SLICES, LEASES,
    REQUESTS, HORIZONTAL_POD_AUTOSCALERS, WIDGETS, SERVICE_CIDRS, IP_ADDRESSES,
    REPLICA_SETS, DEPLOYMENTS, REPLICATION_CONTROLLERS,
)  # fmt: skip


@cache
def recorded() -> tuple[Tree, ...]:
    data = Path(__file__).parent.joinpath("recorded/answers.jsonl").read_bytes()
    return tuple(json.loads(line) for line in data.splitlines())


def bytes_of(tree: Any) -> bytes:
    return tree.encode() if isinstance(tree, str) else json.dumps(tree, separators=(",", ":")).encode()


def answers(method: str, path: str, status: int = 200) -> list[Tree]:
    return [one for one in recorded() if (one["method"], one["path"], one["status"]) == (method, path, status)]


@pytest.mark.parametrize("resource", KINDS, ids=lambda one: one.name)
def test_every_object_of_a_list_is_decoded(resource: Resource[Any]) -> None:
    codec = Codec(resource)
    lists = [one["body"] for one in answers("GET", resource.path()) if "body" in one]
    assert lists
    for tree in lists:
        pieces = codec.parse(bytes_of(tree))
        found, unreadable = codec.sift(pieces.body, pieces.spans)
        assert not unreadable
        assert [obj.metadata.name for obj in found] == [item["metadata"]["name"] for item in tree["items"]]
        assert pieces.metadata.resource_version


@pytest.mark.parametrize("resource", KINDS, ids=lambda one: one.name)
def test_every_event_of_a_watch_is_decoded(resource: Resource[Any]) -> None:
    codec = Codec(resource)
    lines = [line for one in answers("GET", resource.path()) for line in one.get("lines", ())]
    assert {line["type"] for line in lines} >= {"ADDED", "BOOKMARK"}
    for line in lines:
        event = codec.event(bytes_of(line))
        assert not event.unreadable
        assert event.object.metadata.resource_version == line["object"]["metadata"]["resourceVersion"]


def test_discovery_survives_missing_verbs_and_broken_group() -> None:
    async def answer(request: Request) -> Response:
        found = [one for one in answers("GET", request.path) if "body" in one and not one["query"]]
        chosen = next(one for one in found if one["accept"] == request.headers["accept"])
        return Response(200, JSON, bytes_of(chosen["body"]))

    found = asyncio.run(resources(Client(InProcessTransport(answer))))
    verbs = {one.resource.name: one.verbs for one in found.resources}
    assert verbs["odds.metrics.k8s.io"] == frozenset()
    assert "delete" in verbs["widgets.recorded.example"]
    assert found.failed == ("broken.example/v1",)


def test_single_answers_are_decoded() -> None:
    inside = "/namespaces/recorded"
    [scale] = answers("GET", f"/apis/apps/v1{inside}/deployments/web/scale")
    assert Scale.decode(bytes_of(scale["body"])).status.selector == "app=web"
    [metrics] = answers("GET", f"/apis/metrics.k8s.io/v1beta1{inside}/pods")
    assert resource_samples(bytes_of(metrics["body"]), "memory").keys() == {"web-1", "web-2"}
    unknown, known = answers("POST", "/apis/authentication.k8s.io/v1/tokenreviews", 201)
    assert not TokenReview.decode(bytes_of(unknown["body"])).status.authenticated
    account = TokenReview.decode(bytes_of(known["body"])).status.user
    assert account.username == "system:serviceaccount:recorded:default"
    assert "system:serviceaccounts" in account.groups
    [access] = answers("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 201)
    assert not SubjectAccessReview.decode(bytes_of(access["body"])).status.allowed
    [token] = answers("POST", f"/api/v1{inside}/serviceaccounts/default/token", 201)
    assert TokenRequest.decode(bytes_of(token["body"])).spec.expiration_seconds == 600


def test_recorded_errors_map_to_error_classes() -> None:
    refused = [one for one in recorded() if one["status"] >= 400]
    found = [errors.from_response(one["status"], bytes_of(one["body"])) for one in refused]
    assert {type(one) for one in found} >= {
        errors.NotFound, errors.AlreadyExists, errors.Invalid, errors.Conflict, errors.Forbidden, errors.BadRequest,
    }  # fmt: skip
    [ending] = [one for one in found if isinstance(one, errors.Forbidden)]
    assert ending.details is not None
    assert [cause.reason for cause in ending.details.causes] == ["NamespaceTerminating"]


class Replay:
    """Answers reads as recorded; accepts every write and changes nothing."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str, Tree]] = []
        self.versions = 10_000

    async def __call__(self, request: Request) -> Response:
        if request.method != "GET":
            return self._written(request)
        if ("watch", "true") in request.query:
            return Response(200, JSON, self._events(request))
        return self._read(request)

    def of(self, method: str, path: str) -> list[Tree]:
        return [tree for how, where, tree in self.writes if (how, where) == (method, path)]

    def _written(self, request: Request) -> Response:
        tree = json.loads(request.body or b"{}")
        self.writes.append((request.method, request.path, tree))
        if request.path.endswith("accessreviews"):
            tree["status"] = {"allowed": True}
        if request.method == "DELETE":
            return Response(200, JSON, bytes_of({"kind": "Status", "status": "Success", "metadata": {}}))
        self.versions += 1
        metadata = {"name": request.path.rsplit("/", 1)[1], **tree.get("metadata", {})}
        return Response(200, JSON, bytes_of({**tree, "metadata": {**metadata, "resourceVersion": str(self.versions)}}))

    def _read(self, request: Request) -> Response:
        aggregated = "APIGroupDiscoveryList" in request.headers["accept"]
        exact = [
            one
            for one in recorded()
            if one["method"] == "GET" and one["path"] == request.path and "body" in one and "limit" not in one["query"]
        ]
        for one in exact:
            if ("APIGroupDiscoveryList" in one["accept"]) == aggregated:
                return Response(one["status"], JSON, bytes_of(one["body"]))
        objects = {path: obj for collection in self._collections() for path, obj in collection}
        if request.path in objects:
            return Response(200, JSON, bytes_of(objects[request.path]))
        if not request.path.endswith("s"):
            return Response(404, JSON, errors.NotFound("there is none").status().encode())
        below = [obj for path, obj in objects.items() if path.rpartition("/")[0] == request.path]
        return Response(200, JSON, bytes_of({"metadata": {"resourceVersion": "900"}, "items": below or None}))

    @staticmethod
    def _collections() -> list[list[tuple[str, Tree]]]:
        return [
            [
                (resource.path(meta.get("namespace", ""), meta["name"]), item)
                for one in answers("GET", resource.path())
                for item in one.get("body", {}).get("items", ())
                for meta in (item["metadata"],)
            ]
            for resource in KINDS
        ]

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        found = [one["lines"] for one in answers("GET", request.path) if "sendInitialEvents" in one["query"]]
        for line in found[0] if found else [_bookmark("900", **{"k8s.io/initial-events-end": "true"})]:
            yield bytes_of(line) + b"\n"
        while True:
            await asyncio.sleep(5)
            yield bytes_of(_bookmark(str(self.versions))) + b"\n"


def _bookmark(version: str, **annotations: str) -> Tree:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version, "annotations": annotations}}}


@pytest.mark.virtual
async def test_every_controller_works_on_recorded_answers(tmp_path: Path) -> None:
    signing = write_authority(tmp_path, authority())
    every = catalog.installed()
    flags = (
        *("--secure-port=0", "--leader-elect=false", "--controllers=*", f"--root-ca-file={tmp_path}/ca.crt"),
        *signing,
        "--cluster-api-content-type=application/json",
    )
    parsed = flag_set(every).parse(flags)
    replay = Replay()
    network = FaultyNetwork(lambda obtain: InProcessTransport(replay))
    manager = Manager(parsed, catalog.choose(every, parsed), network, Runtime("test"))
    async with Tasks() as tasks:
        tasks.start(manager.run(), name="manager")
        await asyncio.sleep(150)
        state = manager.state()
        manager.stop("the test is over")
        await asyncio.sleep(30)
    assert not [one for informer in state.informers for one in informer.unreadable]
    assert not [one.selection for one in state.informers if not one.synced]
    failing = {one.name: one.work.last_error for one in state.controllers if one.work and one.work.last_error}
    assert not failing
    for expected in EXPECTED:
        assert_done(replay, *expected)


def assert_done(replay: Replay, method: str, path: str, *words: str) -> None:
    """Assert that there was such a write, and that its body contains the words."""
    found = replay.of(method, path)
    assert found, f"no {method} {path}; there were {sorted({(how, where) for how, where, _ in replay.writes})}"
    assert any(all(word in json.dumps(tree) for word in words) for tree in found), found


HERE = "/api/v1/namespaces/recorded"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/recorded/endpointslices"
CSR = "/apis/certificates.k8s.io/v1/certificatesigningrequests/node-a"
# The expected write of each controller.
EXPECTED = [
    ("POST", f"{HERE}/configmaps", "kube-root-ca.crt"),
    ("POST", "/api/v1/namespaces/default/serviceaccounts", "default"),
    ("POST", f"{HERE}/endpoints", "10.1.0.1", "notReadyAddresses", "10.1.0.2"),
    ("POST", SLICES, "10.1.0.2", "endpointslice-controller.k8s.io"),
    ("POST", SLICES, "10.9.0.1", "endpointslicemirroring-controller.k8s.io"),
    ("PUT", "/apis/autoscaling/v2/namespaces/recorded/horizontalpodautoscalers/web/status", "96Mi", "ScalingActive"),
    ("PUT", f"{CSR}/approval", "Approved"),
    ("PUT", "/api/v1/nodes/node-a/status", "NodeStatusUnknown"),
    ("DELETE", f"{HERE}/pods/evicted"),
    ("DELETE", f"{HERE}/pods/lost"),
    ("DELETE", "/apis/recorded.example/v1/namespaces/recorded/widgets/garbage"),
    ("DELETE", "/api/v1/namespaces/recorded-ending/configmaps"),
    ("PUT", "/api/v1/namespaces/recorded-ending/status", "DiscoveryFailed", "broken.example/v1"),
    ("PUT", "/apis/networking.k8s.io/v1/servicecidrs/recorded", "networking.k8s.io/service-cidr-finalizer"),
    ("PUT", "/apis/networking.k8s.io/v1/servicecidrs/recorded/status", "Kubernetes Service CIDR is ready"),
    ("PATCH", "/api/v1/nodes/node-a", "node.alpha.kubernetes.io/ttl"),
    ("POST", "/apis/apps/v1/namespaces/recorded/replicasets", "pod-template-hash", "Deployment"),
    ("PUT", "/apis/apps/v1/namespaces/recorded/deployments/web/status", "ReplicaSetUpdated"),
    ("POST", f"{HERE}/pods", "generateName", "ReplicaSet"),
    ("POST", f"{HERE}/pods", "generateName", "ReplicationController"),
    ("PUT", "/apis/apps/v1/namespaces/recorded/replicasets/set/status", "observedGeneration"),
]
