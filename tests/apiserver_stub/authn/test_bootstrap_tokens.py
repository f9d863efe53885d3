"""Bootstrap tokens: which secrets authenticate, and with which groups (upstream: plugin/pkg/auth, 1.36)."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver_stub.authn.bootstrap_tokens import BootstrapTokens
from apiserver_stub.authn.tokens import Recognized
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.authentication import User

pytestmark = pytest.mark.virtual
TOKEN = "abcdef.0123456789abcdef"
KEY = "kube-system/bootstrap-token-abcdef"
GOOD = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
}


def row(data: dict[str, str] | None = None, kind: str = "bootstrap.kubernetes.io/token", **metadata: Any) -> Row:
    encoded = {
        name: base64.b64encode(value.encode()).decode() for name, value in (GOOD if data is None else data).items()
    }
    tree = {"metadata": {"name": "bootstrap-token-abcdef", **metadata}, "type": kind, "data": encoded}
    return Row("secrets", KEY, 1, json.dumps(tree).encode())


async def authenticate(
    secret: Row | None, token: str = TOKEN, audiences: tuple[str, ...] = ("us",)
) -> Recognized | None:
    def get(resource: str, key: str) -> Row | None:
        return secret if (resource, key) == ("secrets", KEY) else None

    return await BootstrapTokens(get, ("us", "also us")).find(token, audiences)


def in_seconds(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(wall_seconds() + seconds, UTC))


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in GOOD.items() if name not in names}


USAGE = "usage-bootstrap-authentication"


async def test_token_authenticates_bootstrap_user() -> None:
    assert await authenticate(row()) == Recognized(
        User("system:bootstrap:abcdef", groups=("system:bootstrappers",)), ("us",)
    )


async def test_groups_are_sorted_without_duplicates() -> None:
    extra = "system:bootstrappers:workers,system:bootstrappers:a-1,system:bootstrappers:workers"
    recognized = await authenticate(row({**GOOD, "auth-extra-groups": extra}))
    assert recognized is not None
    groups = ("system:bootstrappers", "system:bootstrappers:a-1", "system:bootstrappers:workers")
    assert recognized.user.groups == groups


async def test_expired_token_is_rejected() -> None:
    assert await authenticate(row({**GOOD, "expiration": in_seconds(5)})) is not None
    assert await authenticate(row({**GOOD, "expiration": in_seconds(0)})) is None


REFUSED = {
    "another secret": (row({**GOOD, "token-secret": "0123456789abcdeg"}), TOKEN),
    "a secret that begins so": (row({**GOOD, "token-secret": "0123456789abcde"}), TOKEN),
    "a secret that goes on": (row({**GOOD, "token-secret": "0123456789abcdef0"}), TOKEN),
    "no secret": (row(without("token-secret")), TOKEN),
    "an empty secret": (row({**GOOD, "token-secret": ""}), "abcdef."),
    "another id": (row({**GOOD, "token-id": "abcdeg"}), TOKEN),
    "no id": (row(without("token-id")), TOKEN),
    "no usage": (row(without(USAGE)), TOKEN),
    "another usage": (
        row({**GOOD, USAGE: "false", "usage-bootstrap-signing": "true"}),
        TOKEN,
    ),
    "a usage in capitals": (row({**GOOD, USAGE: "True"}), TOKEN),
    "expired long ago": (row({**GOOD, "expiration": "2001-01-01T00:00:00Z"}), TOKEN),
    "an expiration that cannot be read": (row({**GOOD, "expiration": "tomorrow"}), TOKEN),
    "an expiration without a zone": (row({**GOOD, "expiration": "2999-01-01T00:00:00"}), TOKEN),
    "administrators": (row({**GOOD, "auth-extra-groups": "system:masters"}), TOKEN),
    "a good group and another": (row({**GOOD, "auth-extra-groups": "system:bootstrappers:a,system:masters"}), TOKEN),
    "a group with a line end": (row({**GOOD, "auth-extra-groups": "system:bootstrappers:a\n"}), TOKEN),
    "an empty group": (row({**GOOD, "auth-extra-groups": "system:bootstrappers:a,"}), TOKEN),
    "a group with a space": (
        row({**GOOD, "auth-extra-groups": "system:bootstrappers:a, system:bootstrappers"}),
        TOKEN,
    ),
    "another type": (row(kind="Opaque"), TOKEN),
    "no data": (row({}), TOKEN),
    "going": (row(deletionTimestamp="2026-01-01T00:00:00Z"), TOKEN),
    "gone": (None, TOKEN),
    "a row that cannot be read": (CorruptRow("secrets", KEY, 1, b"{", decode_error="broken"), TOKEN),
    "a token in capitals": (row(), TOKEN.upper()),
    "a token with a line end": (row(), f"{TOKEN}\n"),
    "a token with a path": (row(), "../abc.0123456789abcdef"),
    "another token": (row(), "abcdeg.0123456789abcdef"),
    "the id alone": (row(), "abcdef"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_secret_or_token_is_rejected(case: str) -> None:
    secret, token = REFUSED[case]
    assert await authenticate(secret, token) is None


async def test_token_is_valid_for_server_audience_only() -> None:
    assert await authenticate(row(), audiences=("you",)) is None
    recognized = await authenticate(row(), audiences=("you", "also us"))
    assert recognized is not None
    assert recognized.audiences == ("also us",)
