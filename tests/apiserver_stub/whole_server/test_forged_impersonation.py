"""A user without permissions sends every form of impersonation headers and stays who they are."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_manager.common.api.wire import Request
from tests.apiserver_stub.whole_server.forgery import (
    AS_ADMIN,
    NS,
    POWERLESS,
    TargetServer,
    object_named,
    start_target,
    whoami,
)

JOE = ("Authorization", f"Bearer {POWERLESS}")


def impersonating(*headers: tuple[str, str]) -> Request:
    """A request of Joe, who has no permissions, with impersonation headers."""
    return whoami(JOE, *headers)


AS = ("Impersonate-User", "admin")
IMPERSONATING: dict[str, Request] = {
    "a user": impersonating(AS),
    "a user in small letters": impersonating(("impersonate-user", "admin")),
    "a user in capitals": impersonating(("IMPERSONATE-USER", "admin")),
    "himself": impersonating(("Impersonate-User", "joe")),
    "himself, of a group": impersonating(("Impersonate-User", "joe"), ("Impersonate-Group", "system:masters")),
    "himself in capitals": impersonating(("Impersonate-User", "JOE")),
    "two users, himself first": impersonating(("Impersonate-User", "joe"), AS),
    "two users, himself last": impersonating(AS, ("Impersonate-User", "joe")),
    "an empty user and another": impersonating(("Impersonate-User", ""), AS),
    "the anonymous user": impersonating(("Impersonate-User", "system:anonymous")),
    "a node": impersonating(("Impersonate-User", "system:node:n1")),
    "a node in capitals": impersonating(("Impersonate-User", "system:node:N1")),
    "a service account": impersonating(("Impersonate-User", "system:serviceaccount:default:robot")),
    "half a service account": impersonating(("Impersonate-User", "system:serviceaccount:default")),
    "the server": impersonating(("Impersonate-User", "system:apiserver")),
    "administrators": impersonating(AS, ("Impersonate-Group", "system:masters")),
    "administrators among others": impersonating(
        AS, ("Impersonate-Group", "a"), ("Impersonate-Group", "system:masters")
    ),
    "administrators in a list": impersonating(AS, ("Impersonate-Group", "a, system:masters")),
    "a group only": impersonating(("Impersonate-Group", "system:masters")),
    "an empty group": impersonating(AS, ("Impersonate-Group", "")),
    "five groups": impersonating(AS, *(("Impersonate-Group", f"g{number}") for number in range(5))),
    "a uid": impersonating(AS, ("Impersonate-Uid", "the-uid")),
    "a uid only": impersonating(("Impersonate-Uid", "the-uid")),
    "an extra": impersonating(AS, ("Impersonate-Extra-Scopes", "all")),
    "an extra only": impersonating(("Impersonate-Extra-Scopes", "all")),
    "an extra of no name": impersonating(AS, ("Impersonate-Extra-", "all")),
    "an extra with a slash": impersonating(AS, ("Impersonate-Extra-acme.io%2Fscopes", "all")),
    "an extra that leads elsewhere": impersonating(AS, ("Impersonate-Extra-..%2f..%2fusers", "admin")),
    "an extra of a credential": impersonating(AS, ("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", "n1")),
    "a user with a letter that looks like it": impersonating(("Impersonate-User", "\u0430dmin")),
    "a user with another form of a letter": impersonating(("Impersonate-User", "admi\u0144")),
    "a user that is no text": impersonating(("Impersonate-User", "ad\udcffmin")),
    "a user with NUL": impersonating(("Impersonate-User", "admin\0")),
    "a huge user": impersonating(("Impersonate-User", "a" * 50_000)),
    "a star": impersonating(("Impersonate-User", "*")),
    "as a proxy would": impersonating(*AS_ADMIN),
    "as a proxy would, and so": impersonating(*AS_ADMIN, AS),
    "with underscores": impersonating(("Impersonate_User", "admin")),
    "with another letter in the header": impersonating(("Imper\u017fonate-User", "admin")),
    "with a space in the header": impersonating(("Impersonate-User ", "admin")),
    "in the query": whoami(JOE, query=(AS, ("Impersonate-Group", "system:masters"))),
}


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[TargetServer]:
    async with start_target(tmp_path) as found:
        yield found


async def test_joe_cannot_impersonate(target: TargetServer) -> None:
    became = {}
    for name, request in IMPERSONATING.items():
        found = await target.username(request)
        if found not in ("", "joe"):
            became[name] = found
    assert not became
    refused = [name for name, request in IMPERSONATING.items() if not await target.username(request)]
    let_through = {
        "an empty user and another",  # as upstream, only the first of several headers is used
        "as a proxy would",
        "with underscores",
        "with another letter in the header",
        "with a space in the header",
        "in the query",
    }
    assert set(IMPERSONATING) - set(refused) <= let_through, "these name no header of impersonation"


async def test_rejected_impersonation_has_no_effect(target: TargetServer) -> None:
    for name, request in IMPERSONATING.items():
        path, body = f"{NS}/configmaps", json.dumps(object_named("stolen")).encode()
        asked = Request("POST", path, request.query, request.headers, body, None, request.repeated)
        answer = await target.server.handle(asked)
        assert answer.status in (400, 403), name
    there = (await target.admin("GET", f"{NS}/configmaps"))["items"]
    assert "stolen" not in [one["metadata"]["name"] for one in there]
