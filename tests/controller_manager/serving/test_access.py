"""Who may see the pages of a process."""

import pytest

from controller_manager.api.errors import Forbidden, Unauthorized
from controller_manager.api.wire import Certificate, Request
from controller_manager.serving import Access, Identity

ALICE = Identity("alice", ("team",))


async def owner(token: str) -> Identity | None:
    return {"alice-token": ALICE, "root-token": Identity("root", ("system:masters",))}.get(token)


async def may(identity: Identity, verb: str, path: str) -> bool:
    return identity.name == "alice" and verb == "get" and path == "/metrics"


ACCESS = Access(("/healthz", "/livez"), owner, may)


def request(path: str, token: str = "", certificate: Certificate | None = None) -> Request:
    headers = {"authorization": token} if token else {}
    return Request("GET", path, headers=headers, certificate=certificate)


@pytest.mark.parametrize(
    "allowed",
    [
        request("/healthz"),
        request("/livez/ping"),
        request("/metrics", "Bearer alice-token"),
        request("/metrics", "bearer  alice-token "),
        request("/configz", "Bearer root-token"),
        request("/configz", certificate=Certificate("admin", ("system:masters",))),
        request("/metrics", certificate=Certificate("alice")),
    ],
)
async def test_allowed(allowed):
    await ACCESS.check(allowed)


@pytest.mark.parametrize(
    "unknown",
    [
        request("/metrics"),
        request("/healthzz"),
        request("/metrics", "Bearer nobody"),
        request("/metrics", "Bearer"),
        request("/metrics", "Basic alice-token"),
    ],
)
async def test_unknown_callers(unknown):
    with pytest.raises(Unauthorized):
        await ACCESS.check(unknown)


@pytest.mark.parametrize(
    "known", [request("/configz", "Bearer alice-token"), request("/metrics", certificate=Certificate("bob"))]
)
async def test_known_callers_without_permission(known):
    with pytest.raises(Forbidden, match="cannot get path"):
        await ACCESS.check(known)
