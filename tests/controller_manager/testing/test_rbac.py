"""Requests that a controller did not declare are refused, as by RBAC rules."""

import pytest
from msgspec.structs import replace

from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.options.flag import Options
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Context, ControllerSpec, For, PolicyRule
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, ManagerFailedError, builders
from controller_manager.testing.rbac import PermittedTransport, RBACEnforcer, allows

PODS_RULE = PolicyRule(("",), ("pods",), ("get", "update"))

RULES = {
    "the verb": (PODS_RULE, "GET", "/api/v1/namespaces/a/pods/p", True),
    "another verb": (PODS_RULE, "DELETE", "/api/v1/namespaces/a/pods/p", False),
    "a collection is another verb": (PODS_RULE, "GET", "/api/v1/namespaces/a/pods", False),
    "another resource": (PODS_RULE, "GET", "/api/v1/namespaces/a/services/p", False),
    "another group": (PODS_RULE, "GET", "/apis/other/v1/namespaces/a/pods/p", False),
    "a subresource is another resource": (PODS_RULE, "PUT", "/api/v1/namespaces/a/pods/p/status", False),
    "everything": (PolicyRule(("*",), ("*",), ("*",)), "PUT", "/apis/g/v1/namespaces/a/pods/p/status", True),
    "a subresource of any resource": (
        PolicyRule(("*",), ("*/scale",), ("get",)),
        "GET",
        "/apis/g/v1/namespaces/a/x/p/scale",
        True,
    ),
    "a subresource rule does not cover the resource": (
        PolicyRule(("*",), ("*/scale",), ("get",)),
        "GET",
        "/apis/g/v1/namespaces/a/x/p",
        False,
    ),
    "the name": (PolicyRule(("",), ("nodes",), ("get",), ("n",)), "GET", "/api/v1/nodes/n", True),
    "another name": (PolicyRule(("",), ("nodes",), ("get",), ("n",)), "GET", "/api/v1/nodes/m", False),
}


@pytest.mark.parametrize("case", RULES)
def test_rule_allows_request(case: str) -> None:
    rule, method, path, allowed = RULES[case]
    assert allows(rule, RequestInfo.of(method, path, {})) is allowed


def test_cached_permission_allows_no_other_request() -> None:
    rule = PolicyRule(("",), ("pods",), ("watch",))
    enforcer = RBACEnforcer((replace(MEDDLER, rbac=(rule,)),))
    headers, path = {"user-agent": "manager/meddler"}, "/api/v1/namespaces/a/pods"
    for _ in range(2):
        assert enforcer.refusal(Request("GET", path, (("watch", "true"),), headers)) is None
        for query in ((), (("watch", "false"),)):
            refused = enforcer.refusal(Request("GET", path, query, headers))
            assert refused is not None
            assert refused.status == 403


@pytest.mark.parametrize(("verbs", "status"), [(("patch",), 403), (("patch", "create"), 201)])
async def test_apply_that_creates_without_create_is_refused(verbs: tuple[str, ...], status: int) -> None:
    """A real server refuses it, too, when it finds that the object does not exist."""

    async def handle(request: Request) -> Response:
        return Response(201 if request.path.endswith("new") else 200)

    enforcer = RBACEnforcer((replace(MEDDLER, rbac=(PolicyRule(("",), ("pods",), verbs),)),))
    transport, headers = PermittedTransport(InProcessTransport(handle), enforcer), {"user-agent": "manager/meddler"}
    for name, expected in (("old", 200), ("new", status)):
        request = Request("PATCH", f"/api/v1/namespaces/a/pods/{name}", (), headers)
        assert (await transport.send(request)).status == expected
    refused = [] if status == 201 else ["meddler did not declare that it may create pods of the group '' (a/new)"]
    assert list(enforcer.refused) == refused


class Meddler:
    """Reads the pod of its key, which is allowed, and a namespace, which is not."""

    def __init__(self, context: Context, _options: Options) -> None:
        self._client = context.client

    async def reconcile(self, key: Key) -> None:
        await self._client.get(PODS, key)
        await self._client.get(NAMESPACES, Key("", key.namespace))


MEDDLER = ControllerSpec(name="meddler", reconciler=Meddler, options=Options, watches=(For(PODS),), rbac=(PODS_RULE,))


@pytest.mark.virtual
async def test_undeclared_permission_is_refused() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", specs=[MEDDLER], strict=False)
        await cluster.client.create(PODS, builders.pod("p"))
        await cluster.settle()
        refused = "meddler did not declare that it may get namespaces of the group '' (default)"
        assert list(replica.enforcer.refused) == [refused]


def test_refusals_are_bounded_and_stay_refused() -> None:
    named = PolicyRule(("",), ("nodes",), ("get",), ("mine",))
    enforcer = RBACEnforcer([replace(MEDDLER, rbac=(PODS_RULE, named))])

    def refused(path: str) -> bool:
        return enforcer.refusal(Request("GET", path, (), {"user-agent": "manager/meddler"}, b"")) is not None

    for number in range(3000):
        assert not refused(f"/api/v1/namespaces/n{number}/pods/p{number}")
        assert refused(f"/api/v1/nodes/n{number}")
        assert refused(f"/apis/g{number}.example.com/v1/things")
        assert not refused("/api/v1/nodes/mine")
    assert len(enforcer._known) <= 1000
    assert len(enforcer.refused) == 101
    assert enforcer.refused[0] == "meddler did not declare that it may get nodes of the group '' (n0)"
    assert enforcer.refused[-1] == "5,900 more requests were refused"


@pytest.mark.virtual
async def test_cluster_fails_at_end_with_refused_requests() -> None:
    cluster = Cluster()
    await cluster.__aenter__()
    await cluster.manage("--leader-elect=false", specs=[MEDDLER])
    await cluster.client.create(PODS, builders.pod("p"))
    await cluster.sleep(5)
    with pytest.raises(ManagerFailedError, match="meddler did not declare"):
        await cluster.__aexit__(None, None, None)


@pytest.mark.virtual
async def test_served_path_does_not_match_siblings() -> None:
    async with Cluster() as cluster:
        cluster.serve_beside("/apis/metrics.example.org", _answer)
        beside, other = Call("GET", "/apis/metrics.example.org/v1/pods"), Call("GET", "/apis/metrics.example.orgs/v1")
        assert await cluster.client.raw(beside) == b'"beside"'
        with pytest.raises(NotFound):
            await cluster.client.raw(other)


async def _answer(request: Request) -> Response:
    return Response(200, {}, b'"beside"')
