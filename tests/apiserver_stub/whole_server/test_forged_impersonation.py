"""Somebody without rights tries every form of the headers of impersonation, and becomes nobody else."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_manager.common.api.wire import Request
from tests.apiserver_stub.whole_server.forgery import AS_ADMIN, NS, POWERLESS, Victim, asks, attacked, named

JOE = ("Authorization", f"Bearer {POWERLESS}")


def acting(*headers: tuple[str, str]) -> Request:
    """Joe, who may do nothing, tries to be somebody else."""
    return asks(JOE, *headers)


AS = ("Impersonate-User", "admin")
IMPERSONATING: dict[str, Request] = {
    "a user": acting(AS),
    "a user in small letters": acting(("impersonate-user", "admin")),
    "a user in capitals": acting(("IMPERSONATE-USER", "admin")),
    "himself": acting(("Impersonate-User", "joe")),
    "himself, of a group": acting(("Impersonate-User", "joe"), ("Impersonate-Group", "system:masters")),
    "himself in capitals": acting(("Impersonate-User", "JOE")),
    "two users, himself first": acting(("Impersonate-User", "joe"), AS),
    "two users, himself last": acting(AS, ("Impersonate-User", "joe")),
    "an empty user and another": acting(("Impersonate-User", ""), AS),
    "the anonymous user": acting(("Impersonate-User", "system:anonymous")),
    "a node": acting(("Impersonate-User", "system:node:n1")),
    "a node in capitals": acting(("Impersonate-User", "system:node:N1")),
    "a service account": acting(("Impersonate-User", "system:serviceaccount:default:robot")),
    "half a service account": acting(("Impersonate-User", "system:serviceaccount:default")),
    "the server": acting(("Impersonate-User", "system:apiserver")),
    "administrators": acting(AS, ("Impersonate-Group", "system:masters")),
    "administrators among others": acting(AS, ("Impersonate-Group", "a"), ("Impersonate-Group", "system:masters")),
    "administrators in a list": acting(AS, ("Impersonate-Group", "a, system:masters")),
    "a group only": acting(("Impersonate-Group", "system:masters")),
    "an empty group": acting(AS, ("Impersonate-Group", "")),
    "five groups": acting(AS, *(("Impersonate-Group", f"g{number}") for number in range(5))),
    "a uid": acting(AS, ("Impersonate-Uid", "the-uid")),
    "a uid only": acting(("Impersonate-Uid", "the-uid")),
    "an extra": acting(AS, ("Impersonate-Extra-Scopes", "all")),
    "an extra only": acting(("Impersonate-Extra-Scopes", "all")),
    "an extra of no name": acting(AS, ("Impersonate-Extra-", "all")),
    "an extra with a slash": acting(AS, ("Impersonate-Extra-acme.io%2Fscopes", "all")),
    "an extra that leads elsewhere": acting(AS, ("Impersonate-Extra-..%2f..%2fusers", "admin")),
    "an extra of a credential": acting(AS, ("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", "n1")),
    "a user with a letter that looks like it": acting(("Impersonate-User", "\u0430dmin")),
    "a user with another form of a letter": acting(("Impersonate-User", "admi\u0144")),
    "a user that is no text": acting(("Impersonate-User", "ad\udcffmin")),
    "a user with NUL": acting(("Impersonate-User", "admin\0")),
    "a huge user": acting(("Impersonate-User", "a" * 50_000)),
    "a star": acting(("Impersonate-User", "*")),
    "as a proxy would": acting(*AS_ADMIN),
    "as a proxy would, and so": acting(*AS_ADMIN, AS),
    "with underscores": acting(("Impersonate_User", "admin")),
    "with another letter in the header": acting(("Imper\u017fonate-User", "admin")),
    "with a space in the header": acting(("Impersonate-User ", "admin")),
    "in the query": asks(JOE, query=(AS, ("Impersonate-Group", "system:masters"))),
}


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    async with attacked(tmp_path) as found:
        yield found


async def test_joe_cannot_impersonate(victim: Victim) -> None:
    became = {}
    for name, request in IMPERSONATING.items():
        found = await victim.who(request)
        if found not in ("", "joe"):
            became[name] = found
    assert not became
    refused = [name for name, request in IMPERSONATING.items() if not await victim.who(request)]
    let_through = {
        "an empty user and another",  # as upstream, the first of several headers counts
        "as a proxy would",
        "with underscores",
        "with another letter in the header",
        "with a space in the header",
        "in the query",
    }
    assert set(IMPERSONATING) - set(refused) <= let_through, "these name no header of impersonation"


async def test_rejected_impersonation_has_no_effect(victim: Victim) -> None:
    for name, request in IMPERSONATING.items():
        path, body = f"{NS}/configmaps", json.dumps(named("stolen")).encode()
        asked = Request("POST", path, request.query, request.headers, body, None, request.repeated)
        answer = await victim.server.handle(asked)
        assert answer.status in (400, 403), name
    there = (await victim.admin("GET", f"{NS}/configmaps"))["items"]
    assert "stolen" not in [one["metadata"]["name"] for one in there]
