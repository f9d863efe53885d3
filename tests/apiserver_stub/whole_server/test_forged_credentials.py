"""Forged and replayed credentials of all kinds except service account tokens are rejected."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.wire import Certificate, Request
from tests.apiserver_stub.whole_server.forgery import (
    AS_ADMIN,
    CLIENT_CA,
    FOREVER,
    OTHER_CA,
    POWERLESS,
    PROXY_CA,
    STATIC,
    Row,
    TargetServer,
    accepted_rows,
    bearer,
    ca_digest,
    encoded,
    request_of,
    start_target,
    whoami,
)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def basic(credentials: str) -> Request:
    return whoami(("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode()))


HEADERS: dict[str, Row] = {
    "a part of a token": bearer(STATIC[:-1]),
    "more than a token": bearer(STATIC + "x"),
    "a token in capitals": bearer(STATIC.upper()),
    "a token with a letter that looks like it": bearer(STATIC.replace("e", "\u0435")),
    "a token with full-width letters": bearer(STATIC.replace("s", "\uff53")),
    "a token in quotes": bearer(f'"{STATIC}"'),
    "a token in percent-encoding": bearer("".join(f"%{ord(letter):02x}" for letter in STATIC)),
    "a token in base64": bearer(base64.b64encode(STATIC.encode()).decode()),
    "a token with NUL": bearer(f"{STATIC}\0"),
    "a token with a tab": bearer(f"\t{STATIC}x"),
    "the digest of a token": bearer(digest_of(STATIC)),
    "the name of a user": bearer("admin"),
    "the uid of a user": bearer("the-uid"),
    "the line of a file": bearer(f"{STATIC},admin,the-uid"),
    "a star": bearer("*"),
    "a huge token": bearer("x" * 100_000),
    "a token that is no text": whoami(("Authorization", "Bearer \udcff\udcfe")),
    "nothing": whoami(),
    "an empty header": whoami(("Authorization", "")),
    "the word alone": whoami(("Authorization", "Bearer")),
    "the word and a space": whoami(("Authorization", "Bearer ")),
    "another word": whoami(("Authorization", f"Token {STATIC}")),
    "no word": whoami(("Authorization", STATIC)),
    "the word with a colon": whoami(("Authorization", f"Bearer: {STATIC}")),
    "the word and a tab": whoami(("Authorization", f"Bearer\t{STATIC}")),
    "the word and two spaces": whoami(("Authorization", f"Bearer  {STATIC}")),
    "the word twice": whoami(("Authorization", f"Bearer Bearer {STATIC}")),
    "two tokens in a header": whoami(("Authorization", f"Bearer {STATIC}, Bearer x")),
    "two headers, a bad one first": whoami(("Authorization", "Bearer x"), ("Authorization", f"Bearer {STATIC}")),
    "two headers, a good one first": whoami(("Authorization", f"Bearer {STATIC}"), ("Authorization", "Bearer x")),
    "basic, the token as password": basic(f"admin:{STATIC}"),
    "basic, the token as user": basic(f"{STATIC}:"),
    "basic in the URL's form": whoami(("Authorization", f"Basic admin:{STATIC}")),
    "digest": whoami(("Authorization", 'Digest username="admin", realm="", nonce="", uri="/", response=""')),
    "negotiate": whoami(("Authorization", "Negotiate YII=")),
    "a signature of a cloud": whoami(("Authorization", "AWS4-HMAC-SHA256 Credential=a/b")),
    "for a proxy": whoami(("Proxy-Authorization", f"Bearer {STATIC}")),
    "by another header": whoami(("X-Authorization", f"Bearer {STATIC}")),
    "by a header with an underscore": whoami(("X_Authorization", f"Bearer {STATIC}")),
    "as a cookie": whoami(("Cookie", f"Authorization=Bearer {STATIC}; token={STATIC}")),
    "as access_token in the query": whoami(query=(("access_token", STATIC),)),
    "as token in the query": whoami(query=(("token", STATIC),)),
    "as authorization in the query": whoami(query=(("authorization", f"Bearer {STATIC}"),)),
}  # fmt: skip


def offering(*protocols: str, connection: str = "Upgrade", upgrade: str = "websocket", encoding: str = "") -> Request:
    shown = encoding or encoded(STATIC.encode())
    offered = ", ".join(one.replace("TOKEN", f"base64url.bearer.authorization.k8s.io.{shown}") for one in protocols)
    return whoami(("Connection", connection), ("Upgrade", upgrade), ("Sec-WebSocket-Protocol", offered))


WEBSOCKETS: dict[str, Row] = {
    "a token alone": offering("TOKEN"),
    "a token twice": offering("TOKEN", "TOKEN", "v4.channel.k8s.io"),
    "no offer of a websocket": offering("TOKEN", "v4.channel.k8s.io", connection="keep-alive"),
    "an offer of something else": offering("TOKEN", "v4.channel.k8s.io", upgrade="SPDY/3.1"),
    "another encoding": offering("TOKEN", "v4", encoding=base64.b64encode(b"\xfb\xff" + STATIC.encode()).decode()),
    "with padding": offering("TOKEN", "v4", encoding=encoded(STATIC.encode()) + "=="),
    "half of it": offering("TOKEN", "v4", encoding=encoded(STATIC[:-1].encode())),
    "not encoded": offering("TOKEN", "v4", encoding=STATIC),
    "another prefix": offering("base64.bearer.authorization.k8s.io.x", "v4"),
    "no text": offering("TOKEN", "v4", encoding=encoded(b"\xff\xfe")),
}


def bootstrap(number: int, token: str = "", namespace: str = "kube-system", kind: str = "", **data: str) -> Row:
    """A bootstrap token whose secret differs from a valid one."""

    async def shown(target: TargetServer) -> Request:
        name = f"aaa{number:03}"
        good = {"token-id": name, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        more = {key.replace("_", "-"): value for key, value in data.items()}
        kept = {key: value for key, value in {**good, **more}.items() if value}
        secret = {
            "metadata": {"name": f"bootstrap-token-{name}"},
            "type": kind or "bootstrap.kubernetes.io/token",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in kept.items()},
        }
        await target.admin("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        return bearer(token.replace("ID", name) or f"{name}.0123456789abcdef")

    return shown


BOOTSTRAP: dict[str, Row] = {
    "another secret": bootstrap(1, "ID.0123456789abcdeg"),
    "half a secret": bootstrap(2, "ID.01234567"),
    "no secret": bootstrap(3, "ID."),
    "another id": bootstrap(4, "zzzzzz.0123456789abcdef"),
    "in capitals": bootstrap(5, "ID.0123456789ABCDEF"),
    "with a space": bootstrap(6, "ID. 0123456789abcdef"),
    "without the usage": bootstrap(7, usage_bootstrap_authentication=""),
    "for signing only": bootstrap(8, usage_bootstrap_authentication="false", usage_bootstrap_signing="true"),
    "expired": bootstrap(9, expiration="2001-01-01T00:00:00Z"),
    "with an expiration nobody can read": bootstrap(10, expiration="never"),
    "of an administrator": bootstrap(11, auth_extra_groups="system:masters"),
    "of a group that begins otherwise": bootstrap(12, auth_extra_groups="x:system:bootstrappers:a"),
    "of another type": bootstrap(13, kind="Opaque"),
    "of another namespace": bootstrap(14, namespace="default"),
    "whose secret is of another token": bootstrap(15, token_id="bbbbbb"),
}


def certified(
    name: str, authority: Any = None, *groups: str, expires: float = FOREVER, uid: str | None = ""
) -> Certificate:
    return Certificate(name, groups, ca_digest(authority) if authority else "", expires, uid)


FRONT = certified("front", PROXY_CA)
PROXIED: dict[str, Row] = {
    "headers of an unknown proxy": whoami(*AS_ADMIN),
    "headers of an unknown proxy from a forwarded address": whoami(*AS_ADMIN, ("X-Forwarded-For", "127.0.0.1")),
    "a proxy of another name": whoami(*AS_ADMIN, certificate=certified("back", PROXY_CA)),
    "a proxy of a name in capitals": whoami(*AS_ADMIN, certificate=certified("FRONT", PROXY_CA)),
    "a proxy of no name": whoami(*AS_ADMIN, certificate=certified("", PROXY_CA)),
    "a proxy that has expired": whoami(*AS_ADMIN, certificate=certified("front", PROXY_CA, expires=1.0)),
    "a proxy of another authority": whoami(*AS_ADMIN, certificate=certified("front", OTHER_CA)),
    "a proxy of no authority": whoami(*AS_ADMIN, certificate=certified("front")),
    "a proxy without a user": whoami(AS_ADMIN[1], certificate=FRONT),
    "a proxy with an empty user": whoami(("X-Remote-User", ""), AS_ADMIN[1], certificate=FRONT),
    "a proxy with an empty user first": whoami(("X-Remote-User", ""), *AS_ADMIN, certificate=FRONT),
    "a proxy with underscores": whoami(("X_Remote_User", "admin"), AS_ADMIN[1], certificate=FRONT),
    "a proxy with spaces within": whoami(("X-Remote- User", "admin"), certificate=FRONT),
    "a proxy with another letter": whoami(("X-Remote-U\u017fer", "admin"), certificate=FRONT),
    "a proxy whose user is no text": whoami(("X-Remote-User", "ad\udcffmin"), AS_ADMIN[1], certificate=FRONT),
    "a proxy whose group is no text": whoami(AS_ADMIN[0], ("X-Remote-Group", "\udcff"), certificate=FRONT),
    "a proxy whose extra is no text": whoami(*AS_ADMIN, ("X-Remote-Extra-A", "\udcff"), certificate=FRONT),
    "a proxy as a client": whoami(certificate=FRONT),
    "a proxy in the group of administrators": whoami(certificate=certified("front", PROXY_CA, "system:masters")),
    "in the query": whoami(query=AS_ADMIN),
}
CERTIFICATES: dict[str, Row] = {
    "of another authority": whoami(certificate=certified("admin", OTHER_CA, "system:masters")),
    "of no authority": whoami(certificate=certified("admin", None, "system:masters")),
    "that has expired": whoami(certificate=certified("admin", CLIENT_CA, "system:masters", expires=1.0)),
    "without a user": whoami(certificate=certified("", CLIENT_CA, "system:masters")),
    "with an unknown uid": whoami(certificate=certified("admin", CLIENT_CA, "system:masters", uid=None)),
    "that shows the server's own name": whoami(certificate=certified("system:apiserver", None, "system:masters")),
    "as a header": whoami(("X-SSL-Client-Cert", "MIIB"), ("SSL_CLIENT_S_DN", "CN=admin,O=system:masters")),
    "forwarded": whoami(("X-Forwarded-Client-Cert", 'Subject="CN=admin,O=system:masters"')),
}
KINDS = {
    "headers": HEADERS, "websockets": WEBSOCKETS, "bootstrap": BOOTSTRAP, "proxied": PROXIED,
    "certificates": CERTIFICATES,
}  # fmt: skip
GOOD: dict[str, Row] = {
    "admin": bearer(STATIC),
    "joe": bearer(POWERLESS),
    "system:bootstrap:aaa999": bootstrap(999),
    "jane": whoami(certificate=certified("jane", CLIENT_CA)),
    "alice": whoami(("X-Remote-User", "alice"), certificate=FRONT),
    "admin ": offering("TOKEN", "v4.channel.k8s.io"),
}


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[TargetServer]:
    async with start_target(tmp_path) as found:
        yield found


async def test_valid_credentials_of_each_kind_are_accepted(target: TargetServer) -> None:
    for name, row in GOOD.items():
        assert await target.username(await request_of(row, target)) == name.strip(), name


@pytest.mark.parametrize("kind", KINDS)
async def test_forged_credentials_are_rejected(target: TargetServer, kind: str) -> None:
    assert not await accepted_rows(target, KINDS[kind])
