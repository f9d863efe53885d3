"""Authorization: the attributes of a request that decide, the authorizers that do, and access to a process's own pages.

Every process that serves requests builds its authorization of these.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from controller_manager.common.api.errors import BadRequest, Details, Forbidden, InternalError, ServiceUnavailable
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import FieldSelector, LabelSelector
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving.authentication import (
    RequestAuthenticator,
    User,
    is_text,
    refuse_impersonation,
    unauthorized,
)

S = TypeVar("S", FieldSelector, LabelSelector)


class Selectors:
    """The field and label selectors that narrow a request (KEP-4601). Texts are parsed when an authorizer reads them.

    A text that is malformed, or is larger than a list accepts, counts as none: selectors only narrow, so the
    authorizer decides about more than is asked for.
    """

    def __init__(self, fields: FieldSelector | str | None = None, labels: LabelSelector | str | None = None) -> None:
        self._fields = fields
        self._labels = labels

    @cached_property
    def fields(self) -> FieldSelector | None:
        """The field selector."""
        return _parsed(FieldSelector, self._fields) if isinstance(self._fields, str) else self._fields

    @cached_property
    def labels(self) -> LabelSelector | None:
        """The label selector."""
        return _parsed(LabelSelector, self._labels) if isinstance(self._labels, str) else self._labels


def _parsed(of: type[S], text: str) -> S | None:
    try:
        return of.parse_bounded(text) if text else None
    except BadRequest:
        return None


NO_SELECTORS = Selectors()


class AuthorizerAttributes(Struct, frozen=True, gc=False):
    """The attributes of a request for authorization: who asks, and for what.

    `resource` is empty for a path that addresses no resource; then `verb` is the HTTP method in lower case.
    """

    user: User
    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    selectors: Selectors = NO_SELECTORS


class Decision(Enum):
    """An authorizer's decision on a request; the values are those of metrics. Only ALLOW lets a request through."""

    ALLOW = "allowed"
    DENY = "denied"
    NO_OPINION = "no-opinion"


class Authorization(NamedTuple):
    """A decision and why; `error` says what went wrong on the way to it."""

    decision: Decision
    reason: str = ""
    error: str = ""


ALLOWED = Authorization(Decision.ALLOW)
NO_OPINION = Authorization(Decision.NO_OPINION)


class AllowedResources(Struct, frozen=True):
    """Verbs that are allowed on resources; `*` stands for all, no names for every name."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()


class NonResourceRule(Struct, frozen=True):
    """Verbs that are allowed on paths; `*` at the end of a path stands for all that begin so."""

    verbs: tuple[str, ...]
    paths: tuple[str, ...]


class Rules(Struct, frozen=True):
    """All that a user may do in a namespace, as far as it can be listed; `error` says why it is `incomplete`."""

    resource_rules: tuple[AllowedResources, ...] = ()
    non_resource_rules: tuple[NonResourceRule, ...] = ()
    incomplete: bool = False
    error: str = ""


NO_RULES = Rules()
ALL_RULES = Rules((AllowedResources(("*",), ("*",), ("*",)),), (NonResourceRule(("*",), ("*",)),))


class Authorizer(Protocol):
    """Decides whether users may do what they ask for."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the decision. Raises `ServiceUnavailable` when it cannot be made, and nobody else is to be asked."""

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return what a user may do in a namespace."""


class AuthorizerChain:
    """An authorizer of several: the first that has an opinion decides, and `decided` is told who did."""

    def __init__(
        self, authorizers: Sequence[Authorizer], decided: Callable[[Authorizer, Decision], None] | None = None
    ) -> None:
        self._authorizers = tuple(authorizers)
        self._decided = decided

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the first opinion; NO_OPINION with all reasons and errors if there is none. Raises
        `ServiceUnavailable`.
        """
        passed: list[Authorization] = []
        for authorizer in self._authorizers:
            authorization = await authorizer.authorize(attributes)
            if authorization.decision is not Decision.NO_OPINION:
                if self._decided is not None:
                    self._decided(authorizer, authorization.decision)
                return authorization
            if authorization is not NO_OPINION:
                passed.append(authorization)
        if not passed:
            return NO_OPINION
        reasons = "\n".join(each.reason for each in passed if each.reason)
        return Authorization(Decision.NO_OPINION, reasons, all_errors([each.error for each in passed if each.error]))

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the rules of all authorizers together."""
        found = [await authorizer.rules_for(user, namespace) for authorizer in self._authorizers]
        return Rules(
            tuple(rule for rules in found for rule in rules.resource_rules),
            tuple(rule for rules in found for rule in rules.non_resource_rules),
            any(rules.incomplete for rules in found),
            all_errors([rules.error for rules in found if rules.error]),
        )


class PrivilegedGroups:
    """An authorizer that allows the members of some groups everything."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._groups = frozenset(groups)

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW for a member."""
        return NO_OPINION if self._groups.isdisjoint(attributes.user.groups) else ALLOWED

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return nothing: members need no rules, and what lists these tells of none (`union.NewRuleResolvers`)."""
        return NO_RULES


class AlwaysAllowedPaths:
    """Paths that anybody may see: each the very path, or with `*` at its end all that begin so.

    A path is compared as it is routed, percent-decoded and otherwise untouched; one that a page elsewhere might be
    meant by, with empty segments, dots or an encoded slash in it, begins like nothing.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        rooted = [f"/{path.removeprefix('/')}" for path in paths]
        self._exact = frozenset(path for path in rooted if not path.endswith("*"))
        self._beginnings = tuple(path.removesuffix("*") for path in rooted if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        return path in self._exact or (path.startswith(self._beginnings) and _is_plain(path))


def all_errors(errors: Sequence[str]) -> str:
    """Return several errors as one text, as clients know it: each once, in brackets if there are several."""
    distinct = tuple(dict.fromkeys(errors))
    return f"[{', '.join(distinct)}]" if len(distinct) > 1 else "".join(distinct)


def refusal(attributes: AuthorizerAttributes, reason: str = "") -> Forbidden:
    """Return the error for a request that is not allowed; it says who wanted what."""
    why = f": {reason}" if reason else ""
    user, verb = quote(attributes.user.name), attributes.verb
    if not attributes.resource:
        return Forbidden(f"forbidden: User {user} cannot {verb} path {quote(attributes.path)}{why}", Details())
    group, name, resource = attributes.group, attributes.name, attributes.resource
    qualified = f"{resource}.{group}" if group else resource
    subject = f"{qualified} {quote(name)}" if name else qualified
    target = f"{resource}/{attributes.subresource}" if attributes.subresource else resource
    scope = f"in the namespace {quote(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    asked = f"{verb} resource {quote(target)} in API group {quote(group)} {scope}"
    message = f"{subject} is forbidden: User {user} cannot {asked}{why}"
    return Forbidden(message, Details(name=name, group=group, kind=resource))


def _is_plain(path: str) -> bool:
    segments = path.split("/")[1:]
    return (
        "%2f" not in path.lower()
        and not any(segment in (".", "..") for segment in segments)
        and "" not in segments[:-1]
    )


class Observer(Protocol):
    """Is told how each request was judged, and how long that took in seconds."""

    def authenticated(self, user: User | None, seconds: float, *, refused: bool = False) -> None:
        """A user was recognized; None: nobody, whose credentials were `refused` or who had none."""

    def authorized(self, decision: Decision | None, seconds: float) -> None:
        """Something was decided; None: it could not be."""


class Access:
    """The rules of one process.

    An always allowed path is answered without a look at credentials, so that it is answered while the API server is
    away.
    """

    def __init__(
        self,
        always_allowed: AlwaysAllowedPaths,
        authenticator: RequestAuthenticator,
        authorizer: Authorizer,
        observer: Observer,
    ) -> None:
        self._always_allowed = always_allowed
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._observer = observer

    async def check(self, request: Request) -> None:
        """Return if the request may be answered.

        Raises Unauthorized for credentials that are not accepted, Forbidden, BadRequest or Forbidden for a request in
        another's name, and InternalError when the API server cannot be asked what a user may do.
        """
        if request.path in self._always_allowed:
            return
        if not is_text(request.path):
            raise BadRequest("the path is not UTF-8")
        user = await self._authenticate(request)
        refuse_impersonation(request.headers)
        attributes = AuthorizerAttributes(user, request.method.lower(), request.path)
        decision, reason, error = await self._authorize(attributes)
        if decision is Decision.ALLOW:
            return
        if error:
            raise InternalError("it cannot be found out what the caller may see")
        raise refusal(attributes, reason)

    async def may_list(self, request: Request, resource: Resource[Any]) -> bool:
        """Return whether the caller of a request may list all objects of a resource. Raises what `check` does."""
        user = await self._authenticate(request)
        group, version, plural = resource.group, resource.version, resource.plural
        decision, _, _ = await self._authorize(AuthorizerAttributes(user, "list", "", group, version, plural))
        return decision is Decision.ALLOW

    async def _authenticate(self, request: Request) -> User:
        began, user, refused = monotonic(), None, True
        try:
            user = await self._authenticator.recognize(request)
            refused = False
        finally:
            self._observer.authenticated(user, monotonic() - began, refused=refused)
        if user is None:
            raise unauthorized()
        return user

    async def _authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        began, decision = monotonic(), None
        try:
            authorization = await self._authorizer.authorize(attributes)
            decision = authorization.decision
        except ServiceUnavailable:
            raise InternalError("it cannot be found out what the caller may see") from None
        finally:
            self._observer.authorized(decision, monotonic() - began)
        return authorization
