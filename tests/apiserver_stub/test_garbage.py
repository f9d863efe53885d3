"""Whatever comes, no answer is a 5xx, except that a revision from the future is documented to time out with 504."""

import asyncio

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.build import ApiServer, build
from apiserver_stub.flags import FLAGS
from controller_manager.api.wire import Certificate, Request
from controller_manager.base.runtime import Runtime
from controller_manager.testing.virtual import VirtualLoop


def one_of_words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


SEGMENTS = one_of_words(
    "api apis v1 v2 apps autoscaling authentication.k8s.io authorization.k8s.io events.k8s.io watch namespaces default "
    "pods nodes services deployments events horizontalpodautoscalers tokenreviews selfsubjectaccessreviews a "
    "kubernetes status scale binding eviction finalize version metrics healthz"
)
PLACES = one_of_words(
    "/api/v1/namespaces /api/v1/namespaces/default /api/v1/namespaces/a/finalize /api/v1/nodes /api/v1/pods "
    "/api/v1/namespaces/default/pods /api/v1/namespaces/default/pods/a /api/v1/namespaces/default/pods/a/status "
    "/api/v1/namespaces/default/pods/a/eviction /api/v1/namespaces/default/pods/a/binding "
    "/api/v1/namespaces/default/services /api/v1/namespaces/default/services/kubernetes "
    "/apis/apps/v1/deployments /apis/apps/v1/namespaces/default/deployments "
    "/apis/apps/v1/namespaces/default/deployments/a /apis/apps/v1/namespaces/default/deployments/a/scale "
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers "
    "/apis/events.k8s.io/v1/namespaces/default/events /apis/authentication.k8s.io/v1/tokenreviews "
    "/apis/authorization.k8s.io/v1/subjectaccessreviews /apis/authorization.k8s.io/v1/selfsubjectrulesreviews "
    "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
)
PATHS = PLACES | st.lists(SEGMENTS | st.text(max_size=5), max_size=8).map(lambda parts: "/" + "/".join(parts))
PARAMETERS = one_of_words(
    "watch limit continue resourceVersion resourceVersionMatch labelSelector fieldSelector dryRun fieldValidation "
    "pretty force timeoutSeconds gracePeriodSeconds propagationPolicy sendInitialEvents allowWatchBookmarks "
    "fieldManager exclude"
)
VALUES = one_of_words("1 true 0 -1 All Exact NotOlderThan Strict a=b metadata.name=a 99999") | st.text(max_size=8)
MEDIA = one_of_words(
    "application/json application/yaml application/json-patch+json application/merge-patch+json "
    "application/strategic-merge-patch+json application/apply-patch+yaml text/plain */* ;;,=q "
    "application/json;as=Table;g=meta.k8s.io;v=v1 application/vnd.kubernetes.protobuf"
) | st.just("\udcff")
FIELDS = one_of_words(
    "kind apiVersion metadata spec status name namespace labels annotations containers template op path value $patch "
    "ports selector replicas finalizers ownerReferences target user resourceAttributes token generateName "
    "resourceVersion deletionTimestamp $setElementOrder/containers subsets preconditions"
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 2**63) | st.floats() | st.text(max_size=5) | one_of_words("Pod v1 a 80")
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("a")}, optional={"labels": TREES, "finalizers": TREES})},
    optional={"spec": TREES, "status": TREES, "kind": TREES},
)
POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
BODIES = st.binary(max_size=20) | (st.just(POD) | TREES | OBJECTS).map(msgspec.json.encode)
REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", ""]),
    PATHS,
    st.lists(st.tuples(PARAMETERS, VALUES), max_size=4).map(tuple),
    st.fixed_dictionaries({}, optional={"accept": MEDIA, "content-type": MEDIA, "if-none-match": st.text(max_size=3)}),
    BODIES,
    st.just(Certificate("admin", ("system:masters",))),
)


def test_no_request_brings_the_server_down() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        api = runner.run(_started())

        @settings(max_examples=200, deadline=None)
        @given(st.lists(REQUESTS, min_size=1, max_size=5))
        def attempt(requests: list[Request]) -> None:
            for request in requests:
                code, body = runner.run(_answer(api, request))
                assert code < 500 or (code == 504 and b"Too large resource version" in body), body

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
    await response.body.aclose()  # type: ignore[attr-defined]
    return response.status, first
