"""Bootstrap tokens: the credentials of joining nodes, stored in secrets of `kube-system`."""

import hmac
import re
from collections.abc import Mapping, Sequence

import msgspec

from apiserver_stub.authn.service_accounts import Get
from apiserver_stub.authn.tokens import Recognized, shared
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.platform import SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.authentication import User

_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_BOOTSTRAPPERS = "system:bootstrappers"
_TYPE = "bootstrap.kubernetes.io/token"


class _Metadata(msgspec.Struct):
    deletion: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Secret(msgspec.Struct):
    metadata: _Metadata
    type: str = ""
    data: Mapping[str, bytes] = {}


_DECODER = msgspec.json.Decoder(_Secret)


class BootstrapTokens:
    """Verifies tokens `ID.SECRET` against the secrets `bootstrap-token-ID` of that type that allow authentication.

    Secrets are read from the store each time (`get`), so that a deleted or changed one is rejected at once. The tokens
    are valid for this server, the `audiences`.
    """

    def __init__(self, get: Get, audiences: Sequence[str]) -> None:
        self._get = get
        self._audiences = tuple(audiences)

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`. The reason of a rejection is not reported."""
        form = _TOKEN.fullmatch(token)
        meant = shared(audiences, self._audiences) if form else ()
        if form is None or not meant:
            return None
        row = self._get("secrets", f"{SYSTEM_NAMESPACE}/bootstrap-token-{form[1]}")
        if row is None or isinstance(row, CorruptRow):
            return None
        groups = _groups(row, form[1], form[2], wall_seconds())
        return Recognized(User(f"system:bootstrap:{form[1]}", groups=groups), meant) if groups else None


def _groups(row: Row, name: str, secret: str, now: float) -> tuple[str, ...]:
    """Return the groups of the user of a secret, sorted; empty if it does not accept this token now."""
    try:
        found = _DECODER.decode(row.data)
    except msgspec.DecodeError:
        return ()
    data = found.data
    is_good = (
        found.metadata.deletion is None
        and found.type == _TYPE
        and hmac.compare_digest(data.get("token-secret", b""), secret.encode())
        and data.get("token-id") == name.encode()
        and data.get("usage-bootstrap-authentication") == b"true"
        and not _is_over(data.get("expiration", b""), now)
    )
    extra = data.get("auth-extra-groups", b"").decode("utf-8", "replace")
    groups = extra.split(",") if extra else []
    if not is_good or not all(map(_GROUP.fullmatch, groups)):
        return ()
    return tuple(sorted({_BOOTSTRAPPERS, *groups}))


def _is_over(expiration: bytes, now: float) -> bool:
    """Return whether a time has passed. An invalid time counts as passed; without one, the secret does not expire."""
    if not expiration:
        return False
    try:
        return parse_time(expiration.decode()).timestamp() <= now
    except ValueError:
        return True
