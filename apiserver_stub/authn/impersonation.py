"""Impersonation: users act as other users if the authorizer allows it."""

from collections.abc import Iterable

from msgspec import Struct
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.impersonation_modes import LEGACY, MODES, Mode
from apiserver_stub.encode.json import encode
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.audit import note_latency
from controller_manager.common.api.errors import BadRequest, Forbidden, ServiceUnavailable
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.serving.authentication import IMPERSONATION, User, header_key, is_text
from controller_manager.common.serving.authorization import (
    NO_OPINION,
    Authorization,
    Authorizer,
    AuthorizerAttributes,
    Decision,
    refusal,
)

_EXTRA = f"{IMPERSONATION}extra-"
_REMEMBERED = 10_000  # users whose last successful mode is cached
_SECONDS = tuple(0.001 * 2**power for power in range(15))

_ATTEMPTS = Family(
    "apiserver_impersonation_attempts_total",
    "Number of impersonated requests, by mode and decision.",
    "counter",
    ("mode", "decision"),
)
_ATTEMPT_TIME = Family(
    "apiserver_impersonation_attempts_duration_seconds",
    "Seconds spent deciding on impersonation.",
    "histogram",
    ("mode", "decision"),
    _SECONDS,
)
_CHECKS = Family(
    "apiserver_impersonation_authorization_attempts_total",
    "Number of authorization checks of impersonation.",
    "counter",
    ("mode", "decision"),
)
_CHECK_TIME = Family(
    "apiserver_impersonation_authorization_attempts_duration_seconds",
    "Seconds spent in authorization checks of impersonation.",
    "histogram",
    ("mode", "decision"),
    _SECONDS,
)


class Impersonated(Struct, frozen=True):
    """The impersonated user, and the verb that allowed it: empty for `impersonate`."""

    user: User
    constraint: str = ""


def wanted_user(request: Request) -> User | None:
    """Return the user in the impersonation headers; None without them.

    Raises `BadRequest` for headers with user attributes but without a user name, and for invalid text.
    """
    extra: dict[str, tuple[str, ...]] = {}
    for header in request.headers:
        if header.startswith(_EXTRA):
            key = header_key(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), *request.values(header))
    name, uid = (next(iter(request.values(f"{IMPERSONATION}{one}")), "") for one in ("user", "uid"))
    user = User(name, uid, request.values(f"{IMPERSONATION}group"), extra)
    if not all(is_text(text) for text in (name, uid, *user.groups, *extra, *(v for vs in extra.values() for v in vs))):
        raise BadRequest("the headers of impersonation are not UTF-8")
    if not name and (uid or user.groups or extra):
        raise BadRequest(f"requested {_shown(user)} without impersonating a user name")
    return user if name else None


class Impersonation:
    """Allows impersonation if one of the modes allows it; unless `constrained`, only the legacy mode exists.

    The mode that last allowed a user something is tried first, so that users of one mode need no other checks.
    Decisions are cached by the authorizer only.
    """

    def __init__(self, authorizer: Authorizer, registry: CollectorRegistry, *, constrained: bool = True) -> None:
        self._authorizer = authorizer
        self._modes = MODES if constrained else (LEGACY,)
        self._last: dict[str, Mode] = {}
        self._attempts, self._attempt_time = Counters(_ATTEMPTS, registry), Histograms(_ATTEMPT_TIME, registry)
        self._checks, self._check_time = Counters(_CHECKS, registry), Histograms(_CHECK_TIME, registry)

    async def impersonate(self, context: RequestContext, user: User) -> Impersonated | None:
        """Return the impersonated user; None without impersonation. Raises `Forbidden` with the error of the first
        mode, or `BadRequest`.
        """
        wanted = wanted_user(context.http)
        if wanted is None:
            return None
        began, labels = monotonic(), ("", "denied")
        try:
            mode = await self._allowing(context.info.attributes(user), wanted)
            labels = (mode.name, "allowed")
        finally:
            seconds = monotonic() - began
            self._attempts.add(*labels)
            self._attempt_time.observe(seconds, *labels)
            note_latency("impersonation", seconds)
        return Impersonated(mode.user(wanted), mode.constraint)

    async def _allowing(self, attributes: AuthorizerAttributes, wanted: User) -> Mode:
        requestor = attributes.user
        last = self._last.get(requestor.name)
        modes = self._modes if last is None else (last, *(mode for mode in self._modes if mode is not last))
        refused: Forbidden | None = None
        for mode in modes:
            if not mode.takes(wanted, requestor):
                continue
            try:
                await self._check(mode, attributes, wanted)
            except Forbidden as error:
                refused = refused or error
                continue
            self._remember(requestor.name, mode)
            return mode
        assert refused is not None  # the last mode applies to all users
        raise refused

    async def _check(self, mode: Mode, attributes: AuthorizerAttributes, wanted: User) -> None:
        """Return if a mode allows it. Raises `Forbidden`."""
        for step in mode.steps(attributes, wanted):
            if step.all_at_once is not None and await self._refusal(mode, step.all_at_once) is None:
                continue
            for asked in step.each:
                refused = await self._refusal(mode, asked)
                if refused is not None:
                    raise refused

    async def _refusal(self, mode: Mode, attributes: AuthorizerAttributes) -> Forbidden | None:
        began, found = monotonic(), NO_OPINION
        try:
            found = await self._authorizer.authorize(attributes)
        except ServiceUnavailable as error:
            found = Authorization(Decision.NO_OPINION, error=error.message)
        decision, why = found.decision, ": ".join(part for part in (found.error, found.reason) if part)
        labels = (mode.name, "allowed" if decision is Decision.ALLOW else "denied")
        self._checks.add(*labels)
        self._check_time.observe(monotonic() - began, *labels)
        return None if decision is Decision.ALLOW else refusal(attributes, why)

    def _remember(self, name: str, mode: Mode) -> None:
        self._last.pop(name, None)
        self._last[name] = mode
        if len(self._last) > _REMEMBERED:
            del self._last[next(iter(self._last))]


def _shown(user: User) -> str:
    """Return a user as kube-apiserver writes one (Go, `%#v`)."""
    groups = f"{{{_listed(user.groups)}}}" if user.groups else "(nil)"
    extra = ", ".join(f"{_quoted(key)}:[]string{{{_listed(user.extra[key])}}}" for key in sorted(user.extra))
    named = f"Name:{_quoted(user.name)}, UID:{_quoted(user.uid)}, Groups:[]string{groups}"
    return f"&user.DefaultInfo{{{named}, Extra:map[string][]string{f'{{{extra}}}' if extra else '(nil)'}}}"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(_quoted, values))


def _quoted(text: str) -> str:
    return encode(text).decode()
