"""Authorization: request attributes, authorizers, and access to the pages of a process.

Every process that serves requests builds its authorization from these classes.
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
    """The field and label selectors of a request (KEP-4601). They are parsed when an authorizer reads them.

    A malformed or too large selector is ignored. Selectors only narrow a request, so the authorizer then decides about
    more than was requested.
    """

    def __init__(self, fields: FieldSelector | str | None = None, labels: LabelSelector | str | None = None) -> None:
        self._fields = fields
        self._labels = labels

    @cached_property
    def fields(self) -> FieldSelector | None:
        """Return the field selector."""
        return _parsed(FieldSelector, self._fields) if isinstance(self._fields, str) else self._fields

    @cached_property
    def labels(self) -> LabelSelector | None:
        """Return the label selector."""
        return _parsed(LabelSelector, self._labels) if isinstance(self._labels, str) else self._labels


def _parsed(of: type[S], text: str) -> S | None:
    try:
        return of.parse_bounded(text) if text else None
    except BadRequest:
        return None


NO_SELECTORS = Selectors()


class AuthorizerAttributes(Struct, frozen=True, gc=False):
    """The attributes of a request for authorization: the user and the requested action.

    `resource` is empty for a non-resource path; then `verb` is the HTTP method in lower case.
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
    """The decision of an authorizer; the values are metric labels. Only ALLOW permits a request."""

    ALLOW = "allowed"
    DENY = "denied"
    NO_OPINION = "no-opinion"


class Authorization(NamedTuple):
    """A decision and its reason; `error` holds errors that occurred during the decision."""

    decision: Decision
    reason: str = ""
    error: str = ""


ALLOWED = Authorization(Decision.ALLOW)
NO_OPINION = Authorization(Decision.NO_OPINION)


class AllowedResources(Struct, frozen=True):
    """Verbs allowed on resources; `*` means all, empty `names` mean every name."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()


class NonResourceRule(Struct, frozen=True):
    """Verbs allowed on paths; `*` at the end of a path matches any suffix."""

    verbs: tuple[str, ...]
    paths: tuple[str, ...]


class Rules(Struct, frozen=True):
    """All permissions of a user in a namespace that can be listed; `error` says why they are `incomplete`."""

    resource_rules: tuple[AllowedResources, ...] = ()
    non_resource_rules: tuple[NonResourceRule, ...] = ()
    incomplete: bool = False
    error: str = ""


NO_RULES = Rules()
ALL_RULES = Rules((AllowedResources(("*",), ("*",), ("*",)),), (NonResourceRule(("*",), ("*",)),))


class Authorizer(Protocol):
    """Decides whether users may do what they request."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the decision. Raises `ServiceUnavailable` if it failed and no other authorizer may decide."""

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the permissions of a user in a namespace."""


class AuthorizerChain:
    """A chain of authorizers: the first with an opinion decides. `decided` is called with that authorizer."""

    def __init__(
        self, authorizers: Sequence[Authorizer], decided: Callable[[Authorizer, Decision], None] | None = None
    ) -> None:
        self._authorizers = tuple(authorizers)
        self._decided = decided

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the first opinion, or NO_OPINION with all reasons and errors. Raises
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
        """Return the combined rules of all authorizers."""
        found = [await authorizer.rules_for(user, namespace) for authorizer in self._authorizers]
        return Rules(
            tuple(rule for rules in found for rule in rules.resource_rules),
            tuple(rule for rules in found for rule in rules.non_resource_rules),
            any(rules.incomplete for rules in found),
            all_errors([rules.error for rules in found if rules.error]),
        )


class PrivilegedGroups:
    """Authorizes every request of the members of some groups."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._groups = frozenset(groups)

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW for a member, else NO_OPINION."""
        return NO_OPINION if self._groups.isdisjoint(attributes.user.groups) else ALLOWED

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return no rules: members need none, and Kubernetes lists none either (`union.NewRuleResolvers`)."""
        return NO_RULES


class AlwaysAllowedPaths:
    """Paths that do not need authorization: exact paths, or prefixes that end in `*`.

    Paths are compared as they are routed: percent-decoded and otherwise unchanged. A path with empty segments, dots or
    an encoded slash may mean another page, so it never matches a prefix.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        rooted = [f"/{path.removeprefix('/')}" for path in paths]
        self._exact = frozenset(path for path in rooted if not path.endswith("*"))
        self._beginnings = tuple(path.removesuffix("*") for path in rooted if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        return path in self._exact or (path.startswith(self._beginnings) and _is_plain(path))


def all_errors(errors: Sequence[str]) -> str:
    """Return several errors as one text in the form of Kubernetes: without duplicates, in brackets if more than one."""
    distinct = tuple(dict.fromkeys(errors))
    return f"[{', '.join(distinct)}]" if len(distinct) > 1 else "".join(distinct)


def refusal(attributes: AuthorizerAttributes, reason: str = "") -> Forbidden:
    """Return the error for a request that is not allowed; it names the user and the action."""
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
    """Receives the result of each authentication and authorization, and its duration in seconds."""

    def authenticated(self, user: User | None, seconds: float, *, refused: bool = False) -> None:
        """Called after an authentication; `user` is None for rejected credentials (`refused`) and for none."""

    def authorized(self, decision: Decision | None, seconds: float) -> None:
        """Called after an authorization; None if the decision failed."""


class Access:
    """Authentication and authorization of one process.

    Requests for always-allowed paths are not authenticated, so that they work while the API server is unavailable.
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
        """Return if the request is allowed.

        Raises Unauthorized for rejected credentials, Forbidden, BadRequest or Forbidden for impersonation, and
        InternalError if the API server cannot be asked.
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
        """Return whether the user of a request may list all objects of a resource. Raises like `check`."""
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
