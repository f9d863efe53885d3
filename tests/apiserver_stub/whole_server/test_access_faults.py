"""A server with external authenticators, authorizers and audit webhooks. Each one hangs, answers wrongly, dies, and
recovers.

Invariants:

- callers who do not need the faulty endpoint are answered as usual, and as fast;
- a caller is authorized only if it would be without faults;
- each endpoint has a limited number of connections, and a limited amount of an answer is read;
- metrics count the failures, and each audit event arrives or is counted as lost;
- soon after the fault, all callers are answered as before.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.random import random_source
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.authn.jwt.issuer import RSA_KEYS, Issuer, jwk
from tests.apiserver_stub.whole_server.faulty_endpoint import FAULTS, WELL, Endpoint, Tree

ADMIN = Certificate("admin", ("system:masters",))
ISSUER, TOKENS, STRICT, LENIENT, AUDIT = "issuer", "tokens", "strict", "lenient", "audit"
ENDPOINTS = (ISSUER, TOKENS, STRICT, LENIENT, AUDIT)
PEOPLE = "clerk-token,clerk,1\nbuyer-token,buyer,2\nthief-token,thief,3\nguard-token,guard,4\n"
PROMPT = 0.1  # seconds for callers who need no endpoint
LONGEST = 65.0  # seconds for callers who wait for a hanging endpoint
FAULT, RECOVERY = 20.0, 40.0  # seconds
MOST_CONNECTIONS = {ISSUER: 4, TOKENS: 64, STRICT: 64, LENIENT: 64, AUDIT: 64}
LARGEST_ANSWER = 10 << 20  # bytes of one answer, including socket buffers


class Caller(NamedTuple):
    """A user who reads a ConfigMap of a namespace: the answer without faults, and the one while an endpoint that they
    need is faulty.
    """

    name: str
    namespace: str
    calm: int
    needs: Collection[str] = ()
    affected: Collection[int] = ()


REMEMBERED, TIMEOUT = 5, 3  # seconds of caching, and of an authorizer call
CALLERS = (  # a failed decision gets 500, as in kube-apiserver
    Caller("admin", "default", 200),
    Caller("clerk", "default", 200),
    Caller("jane", "default", 200),  # with a token of the issuer, whose keys are cached
    Caller("forger", "default", 401, (ISSUER, TOKENS), (401,)),  # with a token signed by another key
    Caller("anonymous", "default", 403),
    Caller("thief", "default", 403),
    Caller("robot", "default", 200, (TOKENS,), (200, 401)),
    Caller("stranger", "default", 401, (TOKENS,), (401,)),
    Caller("guard", "vault", 200, (STRICT,), (200, 500)),
    Caller("clerk", "vault", 403, (STRICT,), (403, 500)),  # the roles would allow him
    Caller("thief", "vault", 403, (STRICT,), (403, 500)),
    Caller("clerk", "shop", 200, (LENIENT,), (200,)),  # the roles allow him
    Caller("buyer", "shop", 200, (LENIENT,), (200, 500)),
    Caller("thief", "shop", 403, (LENIENT,), (403, 500)),
)


class Cluster:
    """The server and its endpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.delivered: dict[tuple[str, str], int] = {}
        self.endpoints = {name: Endpoint(folder, name, getattr(self, f"_{name}")) for name in ENDPOINTS}
        self.runtime = Runtime("test")
        self.tokens: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Cluster"]:
        async with AsyncExitStack() as stack:
            for endpoint in self.endpoints.values():
                await endpoint.become(WELL)
                stack.push_async_callback(endpoint.end)
            self.server: ApiServer = build(FLAGS.parse(tuple(self._flags())), self.runtime)
            await self.server.start()
            stack.push_async_callback(self.server.stop)
            tasks = await stack.enter_async_context(Tasks())
            tasks.start(self.server.run(), name="server")
            await self._fill()
            await asyncio.sleep(2)  # the keys of the issuer are fetched
            yield self

    async def ask(self, caller: Caller) -> int:
        """The status of a caller's request."""
        return await self.get(caller.name, caller.namespace, "c")

    async def get(self, caller: str, namespace: str, name: str) -> int:
        """The status of a request for a ConfigMap."""
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        if caller == "admin":
            return (await self.server.handle(Request("GET", path, certificate=ADMIN))).status
        token = self.tokens.get(caller, f"{caller}-token")
        headers = {} if caller == "anonymous" else {"authorization": f"Bearer {token}"}
        return (await self.server.handle(Request("GET", path, headers=headers))).status

    def sample(self, name: str, /, **labels: str) -> float:
        """The sum of the series with these labels."""
        return sum(
            sample.value
            for family in self.runtime.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def _flags(self) -> Iterator[str]:
        kubeconfigs = {name: endpoint.kubeconfig for name, endpoint in self.endpoints.items()}
        yield "--storage-backend=memory"
        yield f"--token-auth-file={self._file('people.csv', PEOPLE)}"
        yield f"--authentication-config={self._file('authentication.json', self._authentication())}"
        yield f"--authentication-token-webhook-config-file={kubeconfigs[TOKENS]}"
        yield "--authentication-token-webhook-version=v1"
        yield f"--authentication-token-webhook-cache-ttl={REMEMBERED}s"
        authorizers = [
            self._authorizer(STRICT, "vault", "Deny"),
            self._authorizer(LENIENT, "shop", "NoOpinion"),
            {"type": "Node", "name": "node"},
            {"type": "RBAC", "name": "rbac"},
        ]
        document = _document("AuthorizationConfiguration", authorizers=authorizers)
        yield f"--authorization-config={self._file('authorization.json', document)}"
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
        yield f"--audit-policy-file={self._file('policy.json', json.dumps(policy))}"
        yield f"--audit-webhook-config-file={kubeconfigs[AUDIT]}"
        yield from ("--audit-webhook-batch-max-wait=1s", "--audit-webhook-initial-backoff=1s")
        yield "--audit-webhook-batch-buffer-size=200"

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _authentication(self) -> str:
        url, issuer = self.endpoints[ISSUER].url, Issuer()
        self.tokens["jane"] = issuer.token(iss=url)
        self.tokens["forger"] = issuer.token(RSA_KEYS[1], kid="two", iss=url, sub="admin", groups=["system:masters"])
        authenticator = {
            "issuer": {"url": url, "audiences": ["cluster"], "certificateAuthority": self.endpoints[ISSUER].ca},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
            },
        }
        return _document("AuthenticationConfiguration", jwt=[authenticator])

    def _authorizer(self, name: str, namespace: str, policy: str) -> Tree:
        webhook = {
            "timeout": f"{TIMEOUT}s",
            "authorizedTTL": f"{REMEMBERED}s",
            "unauthorizedTTL": f"{REMEMBERED}s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": policy,
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": self.endpoints[name].kubeconfig},
            "matchConditions": [
                {"expression": "has(request.resourceAttributes)"},
                {"expression": f"request.resourceAttributes.namespace == '{namespace}'"},
            ],
        }
        return {"type": "Webhook", "name": name, "webhook": webhook}

    async def _fill(self) -> None:
        """Create namespaces, ConfigMaps, and a role with which the clerk, jane and the robot can read them all."""
        group = "rbac.authorization.k8s.io"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
        subjects = [{"apiGroup": group, "kind": "User", "name": name} for name in ("clerk", "jane", "robot")]
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": "reads"}
        await self._make(f"/apis/{group}/v1/clusterroles", "reads", rules=rules)
        await self._make(f"/apis/{group}/v1/clusterrolebindings", "reads", subjects=subjects, roleRef=reference)
        for name in ("default", "vault", "shop"):
            if name != "default":
                await self._make("/api/v1/namespaces", name)
            await self._make(f"/api/v1/namespaces/{name}/configmaps", "c")

    async def _make(self, path: str, name: str, **fields: Any) -> None:
        body = json.dumps({"metadata": {"name": name}, **fields}).encode()
        response = await self.server.handle(Request("POST", path, body=body, certificate=ADMIN))
        assert response.status == 201, response.body

    def _issuer(self, path: str, _: Tree) -> Tree:
        url = self.endpoints[ISSUER].url
        return {"keys": [jwk(RSA_KEYS[0], "one")]} if path == "/keys" else {"issuer": url, "jwks_uri": f"{url}/keys"}

    def _tokens(self, _: str, review: Tree) -> Tree:
        known = review["spec"]["token"] == "robot-token"
        return {**review, "status": {"authenticated": known, "user": {"username": "robot"} if known else {}}}

    def _strict(self, _: str, review: Tree) -> Tree:
        allowed = review["spec"]["user"] == "guard"
        return {**review, "status": {"allowed": allowed, "denied": not allowed}}

    def _lenient(self, _: str, review: Tree) -> Tree:
        return {**review, "status": {"allowed": review["spec"]["user"] == "buyer"}}

    def _audit(self, _: str, events: Tree) -> Tree:
        for event in events["items"]:
            key = event["auditID"], event["stage"]
            self.delivered[key] = self.delivered.get(key, 0) + 1
        return {}


def _document(kind: str, **fields: Any) -> str:
    return json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, **fields})


@dataclass
class Watcher:
    """Sends the requests of all callers repeatedly, and checks the answers."""

    cluster: Cluster
    waits: list[tuple[float, str, str]] = field(default_factory=list)
    """Seconds that callers waited who did not need the faulty endpoint, with their names and the fault."""

    async def observe(self, faulty: str, seconds: float) -> None:
        """Send each caller's request once a second, at a random moment; wait for the last answer."""
        async with Tasks() as tasks:
            asked = [
                tasks.start(self._once(caller, faulty, random_source().uniform(0, seconds)), name=caller.name)
                for caller in CALLERS
                for _ in range(int(seconds))
            ]
            await asyncio.wait(asked)
            for one in asked:
                one.result()

    async def recovers(self) -> None:
        """Return when all callers are answered as usual, which must be soon."""
        async with asyncio.timeout(RECOVERY):
            while True:
                answers = await asyncio.gather(*map(self.cluster.ask, CALLERS))
                if all(status == caller.calm for status, caller in zip(answers, CALLERS, strict=True)):
                    return
                await asyncio.sleep(1)

    async def _once(self, caller: Caller, faulty: str, when: float) -> None:
        await asyncio.sleep(when)
        loop = asyncio.get_running_loop()
        began, affected = loop.time(), faulty in caller.needs
        status = await self.cluster.ask(caller)
        waited = loop.time() - began
        fault = f"{faulty}: {self.cluster.endpoints[faulty].fault}" if faulty else ""
        if not affected:
            self.waits.append((waited, caller.name, fault))
        what = caller, fault, status, waited
        assert status in (caller.affected if affected else (caller.calm,)), what
        assert waited < LONGEST, what


def failures(cluster: Cluster, name: str) -> float:
    """How often, or when, metrics reported a failed call of an endpoint."""
    match name:
        case "issuer":
            fetched = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds"
            return cluster.sample(fetched, result="failure")
        case "tokens":
            return cluster.sample("authentication_token_cache_fetch_total", status="error")
        case "audit":
            return cluster.sample("apiserver_audit_error_total")
    asked = "apiserver_authorization_webhook_evaluations_total"
    return sum(cluster.sample(asked, name=name, result=result) for result in ("error", "timeout"))


def random_int(limit: int) -> int:
    return int(random_source().uniform(0, limit))


@pytest.mark.virtual(seeds=3)
async def test_each_endpoint_fails_and_recovers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    async with cluster.running():
        watcher = Watcher(cluster)
        await watcher.observe("", 5)
        for name in sorted(ENDPOINTS, key=lambda _: random_int(1000)):
            endpoint, fault, failed = cluster.endpoints[name], FAULTS[random_int(len(FAULTS))], failures(cluster, name)
            await endpoint.become(fault)
            await watcher.observe(name, FAULT)
            await endpoint.become(WELL)
            await watcher.recovers()
            assert name == AUDIT or failures(cluster, name) > failed, (name, fault)
        slow = [wait for wait in watcher.waits if wait[0] > PROMPT]
        assert len(slow) < len(watcher.waits) / 100, slow
    for name, endpoint in cluster.endpoints.items():
        assert 0 < endpoint.most_open <= MOST_CONNECTIONS[name], (name, endpoint.most_open)
        assert endpoint.most_sent < LARGEST_ANSWER, name
        assert endpoint.generous == 0, name
        assert endpoint.open == 0, name
    shown, lost = (cluster.sample(f"apiserver_audit_{name}_total") for name in ("event", "error"))
    assert shown <= len(cluster.delivered) + lost


@pytest.mark.virtual
async def test_hanging_authorizer_delays_others_at_most_one_timeout(
    tmp_path: Path,
) -> None:
    """A request holds its seat while the authorizer is called, so that a flood can hold all seats of its level."""
    async with Cluster(tmp_path).running() as cluster, Tasks() as tasks:
        await cluster.endpoints[STRICT].become("hang")
        flood = [tasks.start(cluster.get("guard", "vault", f"c{number}"), name="flood") for number in range(1000)]
        loop, waits = asyncio.get_running_loop(), []
        while not all(one.done() for one in flood):
            await asyncio.sleep(0.3)
            began = loop.time()
            assert await cluster.get("admin", "default", "c") == 200
            assert loop.time() == began
            assert await cluster.get("clerk", "default", "c") == 200
            waits.append(loop.time() - began)
        assert 1 < max(waits) <= TIMEOUT
        assert {one.result() for one in flood} == {429, 500}
        assert cluster.endpoints[STRICT].most_open <= MOST_CONNECTIONS[STRICT]
        await cluster.endpoints[STRICT].become(WELL)
        await Watcher(cluster).recovers()
