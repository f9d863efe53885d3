"""RBAC with 2,000 roles and 5,000 bindings: what a decision costs, and what it leaves of the speed of a GET.

The ceiling of the GET is the same server with AlwaysAllow; both are asked without sockets, which would hide a part.
"""

import gc
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.interface import Write
from benchmarks.harness import Result, pod
from controller_manager.common.api.rbac import GROUP
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import AuthorizerAttributes

ROLES, BINDINGS = 2000, 5000
NAMESPACES, USERS, BATCH = 200, 500, 500
ASKED, GETS, ROUNDS = 20_000, 2000, 7
LONGEST = 10.0  # microseconds of a decision
LEAST = 0.9  # of the speed of a GET
POD = "/api/v1/namespaces/default/pods/pod-0"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
READER = Certificate("user0", ("group0",))


async def run() -> list[Result]:
    """Decisions never made before, the same again, and GET by somebody with a role."""
    chance = random.Random(7)
    free, bound = [await _server(mode) for mode in ("AlwaysAllow", "RBAC")]
    await _fill(bound, chance)
    rbac = RBACAuthorizer(bound.store)
    rbac.read()
    asked = [_question(chance, index % USERS) for index in range(ASKED)]
    _decide(rbac, asked[:USERS])  # of everybody once: who they are is found out then
    asked = asked[USERS:]
    first, again = _decide(rbac, asked), _decide(rbac, asked)
    mine, top = await _compared(bound, free)
    for server in (free, bound):
        await server.stop()
    return [
        _in_time("a decision never made before", first),
        _in_time("the same decision again", again),
        Result("GET with RBAC", f"{mine:,.0f}/s", f"{top:,.0f}/s", mine / top, LEAST),
    ]


def _in_time(title: str, cost: float) -> Result:
    return Result(title, f"{cost:.2f} µs", f"{LONGEST:.0f} µs", cost / LONGEST, 1.0, at_most=True)


async def _server(mode: str) -> ApiServer:
    flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1", f"--authorization-mode={mode}")
    server = build(FLAGS.parse(flags), Runtime(mode))
    await server.start()
    await _send(server, "POST", POD.rpartition("/")[0], pod("pod-0"))
    return server


async def _send(server: ApiServer, method: str, path: str, tree: Any) -> None:
    headers = {"content-type": "application/json"}
    admin = Certificate("admin", ("system:masters",))
    answer = await server.handle(Request(method, path, (), headers, json.dumps(tree).encode(), admin))
    assert answer.status < 300, answer.body


async def _fill(server: ApiServer, chance: random.Random) -> None:
    """Half of the roles and a fifth of the bindings are of the cluster; a user has ten bindings, more or less."""
    writes = [*_roles(chance), *_bindings(chance)]
    for start in range(0, len(writes), BATCH):
        await server.store.commit(*writes[start : start + BATCH])


def _roles(chance: random.Random) -> Iterator[Write]:
    for number in range(ROLES):
        rules = [
            {
                "apiGroups": chance.sample(["", "apps", "batch", "example.com"], 2),
                "resources": [f"resource{chance.randrange(60)}" for _ in range(5)],
                "verbs": chance.sample(VERBS, 4),
            }
            for _ in range(6)
        ]
        if number % 2:
            yield _row("clusterroles", f"role{number}", {"rules": rules})
        else:
            yield _row("roles", f"ns{number % NAMESPACES}/role{number}", {"rules": rules})
    reads = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    yield _row("clusterroles", "pod-reader", {"rules": [reads]})


def _bindings(chance: random.Random) -> Iterator[Write]:
    for number in range(BINDINGS):
        subjects = [
            {"kind": "User", "apiGroup": GROUP, "name": f"user{chance.randrange(USERS)}"},
            {"kind": "Group", "apiGroup": GROUP, "name": f"group{chance.randrange(USERS)}"},
        ]
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": f"role{chance.randrange(ROLES // 2) * 2 + 1}"}
        if number % 5:
            key = f"ns{number % NAMESPACES}/binding{number}"
            yield _row("rolebindings", key, {"roleRef": role, "subjects": subjects})
        else:
            yield _row("clusterrolebindings", f"binding{number}", {"roleRef": role, "subjects": subjects})
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "pod-reader"}
    subject = {"kind": "User", "apiGroup": GROUP, "name": READER.common_name}
    yield _row("rolebindings", "default/reader", {"roleRef": role, "subjects": [subject]})


def _row(plural: str, key: str, tree: dict[str, Any]) -> Write:
    kinds = {"roles": "Role", "clusterroles": "ClusterRole", "rolebindings": "RoleBinding"}
    metadata = {"resourceVersion": "", "name": key.rpartition("/")[2], "uid": f"{plural}-{key}"}
    whole = {"kind": kinds.get(plural, "ClusterRoleBinding"), "apiVersion": f"{GROUP}/v1", "metadata": metadata, **tree}
    return Write(f"{plural}.{GROUP}", key, 0, json.dumps(whole, separators=(",", ":")).encode())


def _question(chance: random.Random, number: int) -> AuthorizerAttributes:
    """Something that a user asks for in some namespace."""
    groups = (f"group{number}", f"group{(number + 7) % USERS}", "system:authenticated")
    namespace, resource = f"ns{chance.randrange(NAMESPACES)}", f"resource{chance.randrange(60)}"
    return AuthorizerAttributes(
        User(f"user{number}", "", groups), chance.choice(VERBS), "", "", "v1", resource, "", namespace, "n"
    )


def _decide(rbac: RBACAuthorizer, asked: list[AuthorizerAttributes]) -> float:
    """Microseconds of CPU of a decision."""
    gc.collect()  # what was left over before
    began = time.process_time()
    for attributes in asked:
        rbac.decide(attributes)
    return (time.process_time() - began) / len(asked) * 1e6


async def _compared(bound: ApiServer, free: ApiServer) -> tuple[float, float]:
    """Requests a second of CPU, with RBAC and without."""
    rounds = [(await _gets(bound.handle), await _gets(free.handle)) for _ in range(ROUNDS + 1)]
    return statistics.median(each[0] for each in rounds[1:]), statistics.median(each[1] for each in rounds[1:])


async def _gets(handle: Callable[[Request], Awaitable[Any]]) -> float:
    request = Request("GET", POD, (), {"accept": "application/json"}, b"", READER)
    began = time.process_time()
    for _ in range(GETS):
        answer = await handle(request)
        assert answer.status == 200, answer.body
    return GETS / (time.process_time() - began)
