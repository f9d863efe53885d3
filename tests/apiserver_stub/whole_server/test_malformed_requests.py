"""No request causes an internal error. The allowed 5xx are those of kube-apiserver: 504 for a future revision, and 500
without a reason for a malformed one and for a strategic patch that cannot be applied to an object.
"""

import asyncio
import copy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing.virtual import VirtualLoop


def one_of(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


SEGMENTS = one_of(
    "api apis v1 v2 apps autoscaling authentication.k8s.io authorization.k8s.io events.k8s.io watch namespaces default "
    "pods nodes services deployments events horizontalpodautoscalers tokenreviews selfsubjectaccessreviews a "
    "kubernetes status scale binding eviction finalize version metrics healthz"
)
COLLECTIONS = one_of(
    "/api/v1/namespaces /api/v1/nodes /api/v1/namespaces/default/pods /api/v1/namespaces/default/services "
    "/apis/apps/v1/namespaces/default/deployments /apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers "
    "/apis/events.k8s.io/v1/namespaces/default/events /apis/authentication.k8s.io/v1/tokenreviews "
    "/apis/authorization.k8s.io/v1/subjectaccessreviews /apis/authorization.k8s.io/v1/selfsubjectrulesreviews "
    "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews "
    "/api/v1/namespaces/default/pods/a/eviction /api/v1/namespaces/default/pods/a/binding"
)
OBJECTS = one_of(
    "/api/v1/namespaces/a /api/v1/namespaces/a/finalize /api/v1/nodes/a /api/v1/namespaces/default/services/kubernetes "
    "/api/v1/namespaces/default/pods/a /api/v1/namespaces/default/pods/a/status "
    "/apis/apps/v1/namespaces/default/deployments/a /apis/apps/v1/namespaces/default/deployments/a/scale "
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/a"
)
PLACES = COLLECTIONS | OBJECTS
PATHS = PLACES | st.lists(SEGMENTS | st.text(max_size=5), max_size=8).map(lambda parts: "/" + "/".join(parts))
PARAMETERS = one_of(
    "watch limit continue resourceVersion resourceVersionMatch labelSelector fieldSelector dryRun fieldValidation "
    "pretty force timeoutSeconds gracePeriodSeconds propagationPolicy sendInitialEvents allowWatchBookmarks "
    "fieldManager exclude"
)
VALUES = one_of("1 true 0 -1 All Exact NotOlderThan Strict a=b metadata.name=a 99999") | st.text(max_size=8)
MEDIA = one_of(
    "application/json application/yaml application/json-patch+json application/merge-patch+json "
    "application/strategic-merge-patch+json application/apply-patch+yaml text/plain */* ;;,=q "
    "application/json;as=Table;g=meta.k8s.io;v=v1 application/vnd.kubernetes.protobuf"
) | st.just("\udcff")
FIELDS = one_of(
    "kind apiVersion metadata spec status name namespace labels annotations containers template op path value $patch "
    "ports selector replicas finalizers ownerReferences target user resourceAttributes token generateName "
    "resourceVersion deletionTimestamp $setElementOrder/containers subsets preconditions"
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 2**63) | st.floats() | st.text(max_size=5) | one_of("Pod v1 a 80")
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=12,
)
OPERATIONS = st.fixed_dictionaries(
    {"op": one_of("add remove replace move copy test"), "path": one_of("/spec /metadata/labels /spec/a/-")},
    optional={"value": TREES, "from": one_of("/spec /metadata")},
)
LABELS = {"app": "a"}
SOUND = {
    "metadata": {"name": "a", "labels": LABELS, "finalizers": ["example.com/a"]},
    "spec": {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "ports": [{"port": 80}],
        "replicas": 1,
    },
}
SPOTS = st.sampled_from(
    [path.split() for path in ("metadata", "spec", "metadata name", "metadata labels", "metadata finalizers", "status")]
    + [["spec", field] for field in ("containers", "selector", "template", "ports", "replicas", "nodeName", "token")]
)


def damaged(path: list[str], junk: Any) -> Any:
    """A valid object with junk in one place."""
    found = copy.deepcopy(SOUND)
    inner: Any = found
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = junk
    return found


TREES_SENT = st.just(SOUND) | st.builds(damaged, SPOTS, TREES) | TREES | st.lists(OPERATIONS, max_size=3)
BODIES = st.one_of(TREES_SENT.map(msgspec.json.encode), st.binary(max_size=20))
QUERIES = st.lists(st.tuples(PARAMETERS, VALUES), max_size=4).map(tuple)
HEADERS = st.fixed_dictionaries(
    {}, optional={"accept": MEDIA, "content-type": MEDIA, "if-none-match": st.text(max_size=3)}
)
PATCHES = one_of("json-patch+json merge-patch+json strategic-merge-patch+json")
ADMIN = st.just(Certificate("admin", ("system:masters",)))
NO_QUERY: st.SearchStrategy[tuple[tuple[str, str], ...]] = st.just(())
NO_HEADERS: st.SearchStrategy[dict[str, str]] = st.just({})
PATCH_HEADERS = PATCHES.map(lambda name: {"content-type": f"application/{name}"})
# Arbitrary requests; and requests with few errors, which get further.
REQUESTS = st.one_of(
    st.builds(Request, one_of("GET POST PUT PATCH DELETE OPTIONS get"), PATHS, QUERIES, HEADERS, BODIES, ADMIN),
    st.builds(Request, st.just("GET"), PLACES, QUERIES, NO_HEADERS, st.just(b""), ADMIN),
    st.builds(Request, st.just("POST"), COLLECTIONS, NO_QUERY, NO_HEADERS, BODIES, ADMIN),
    st.builds(Request, st.just("PUT"), OBJECTS, NO_QUERY, NO_HEADERS, BODIES, ADMIN),
    st.builds(Request, st.just("PATCH"), OBJECTS, NO_QUERY, PATCH_HEADERS, BODIES, ADMIN),
)


def is_known(code: int, body: bytes) -> bool:
    """Return whether that is an expected 5xx; an internal error has the reason InternalError."""
    if code == 504:
        return b"Too large resource version" in body
    return code == 500 and "reason" not in msgspec.json.decode(body)


def test_any_request_causes_no_internal_error() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        api = runner.run(_started())

        @settings(max_examples=200, deadline=None)
        @given(st.lists(REQUESTS, min_size=1, max_size=5))
        def attempt(requests: list[Request]) -> None:
            for request in requests:
                code, body = runner.run(_answer(api, request))
                assert code < 500 or is_known(code, body), body

        attempt()
        runner.run(api.stop())


async def _started() -> ApiServer:
    flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1")
    api = build(FLAGS.parse(flags), Runtime("test"))
    await api.start()
    return api


async def _answer(api: ApiServer, request: Request) -> tuple[int, bytes]:
    response = await api.handle(request)
    if isinstance(response.body, bytes):
        return response.status, response.body
    is_watch = "watch" in dict(request.query) or "/watch/" in request.path
    first = b"" if is_watch else b"".join([chunk async for chunk in response.body])
    await response.body.aclose()
    return response.status, first
