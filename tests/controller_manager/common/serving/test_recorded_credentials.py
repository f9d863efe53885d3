"""User headers are accepted as by kube-apiserver 1.36, from callers and from a trusted proxy."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.serving.authentication import (
    ANONYMOUS_USER,
    AnonymousAuthenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    RequestHeaderAuthenticator,
    RequestHeaderConfig,
    User,
    WebSocketTokenAuthenticator,
    X509Authenticator,
)
from controller_manager.common.serving.http import fold_headers, repeated_headers
from controller_manager.common.serving.trust import PROXIES, Trust
from tests.controller_manager.common.serving.test_authentication import PROXY_CA, root

pytestmark = pytest.mark.virtual
DATA = Path(__file__).parent / "data" / "credentials.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
# Stricter than upstream: ambiguous headers are refused.
STRICTER = frozenset({"trailing word", "good first"})
CONFIG = RequestHeaderConfig((), ("X-Remote-User",), (), ("X-Remote-Group",), ("X-Remote-Extra-",))


class Tokens:
    async def authenticate_token(self, token: str) -> User | None:
        return User("admin", "admin", ("system:masters",)) if token == "admin-token" else None


def chain() -> RequestAuthenticator:
    trust = Trust()
    trust.set(PROXIES, PROXY_CA.certificate)
    tokens = Tokens()
    known = [
        RequestHeaderAuthenticator(trust, CONFIG),
        X509Authenticator(lambda _: False),
        BearerTokenAuthenticator(tokens),
        WebSocketTokenAuthenticator(tokens),
    ]
    return RequestAuthenticator(known, AnonymousAuthenticator())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
async def test_users_equal_recorded_kube_apiserver_results(row: dict[str, Any]) -> None:
    headers = [(name, value.strip(" ")) for name, value in row["headers"]]
    certificate = Certificate("front-proxy-client", (), root(PROXY_CA)) if row["proxy"] else None
    request = Request("POST", "/", (), fold_headers(headers), b"", certificate, repeated_headers(headers))
    if row["code"] == 401 or row["case"] in STRICTER:
        with pytest.raises(Unauthorized):
            await chain().authenticate(request)
        return
    user = await chain().authenticate(request)
    if row["code"] == 403:
        assert user == ANONYMOUS_USER or user.name == "system:anonymous" or "system:unauthenticated" in user.groups
    else:
        extra = {name: tuple(values) for name, values in row["user"]["extra"].items()}
        assert user == User(row["user"]["name"], row["user"]["uid"], tuple(row["user"]["groups"]), extra)
