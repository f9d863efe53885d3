"""Enforces the declared permissions of controllers: a request that no rule allows gets 403, as with RBAC."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from apiserver_stub.request.request_info import RequestInfo, is_on, last_values
from controller_manager.app.catalog import AnySpec
from controller_manager.app.permissions import EVENTS, reads
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.wire import DuplexStream, Request, Response
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.controller.spec import PolicyRule

_WITHOUT_CREATE = frozenset({"PUT", "PATCH"})  # methods that may create an object although they need another verb
_MOST_KNOWN = 1000
_MOST_REFUSED = 100


class RBACEnforcer:
    """The permissions of each part of a manager, which is identified by the user agent `manager/part`.

    Parts without declared permissions, such as the leader election, may do everything.
    """

    def __init__(self, specs: Sequence[AnySpec]) -> None:
        self._refused: dict[str, None] = {}
        # Number of rejected requests beyond those that are stored as text.
        self._unnamed = 0
        self._rules: Mapping[str, Sequence[PolicyRule]] = {
            "informers": reads(specs),
            "events": EVENTS,
            **{spec.name: spec.rbac for spec in specs},
        }
        # Cache of allowed requests: part, method, path, and whether it is a watch; cleared when it is full.
        self._allowed: set[tuple[str, str, str, bool]] = set()
        # Cache of the rules of a part for a verb and a resource; cleared when it is full.
        self._known: dict[tuple[str, ...], Sequence[PolicyRule]] = {}

    @property
    def refused(self) -> Sequence[str]:
        """Descriptions of the rejected requests, each once; beyond a hundred, the number of further ones."""
        more = [f"{self._unnamed:,} more requests were refused"] if self._unnamed else []
        return [*self._refused, *more]

    def refusal(self, request: Request) -> Response | None:
        """Return a 403 response if a request is not allowed, else None."""
        part = request.headers.get("user-agent", "").rpartition("/")[2]
        rules = self._rules.get(part)
        if rules is None:
            return None
        query = last_values(request.query)
        asked = part, request.method, request.path, is_on(query, "watch")  # no other query parameter matters
        if asked in self._allowed:
            return None
        info = RequestInfo.of(request.method, request.path, query)
        if not info.resource or self._allows(part, rules, info):
            if len(self._allowed) >= _MOST_KNOWN:
                self._allowed.clear()
            self._allowed.add(asked)
            return None
        return self._refuse(part, info)

    def refusal_of_create(self, request: Request) -> Response | None:
        """Return a 403 response for an update or apply that created an object without the permission to create it."""
        part = request.headers.get("user-agent", "").rpartition("/")[2]
        rules = self._rules.get(part)
        if rules is None:
            return None
        info = replace(RequestInfo.of(request.method, request.path, {}), verb="create")
        return None if self._allows(part, rules, info) else self._refuse(part, info)

    def _refuse(self, part: str, info: RequestInfo) -> Response:
        sentence = f"{part} did not declare that it may {_words(info)}"
        self._remember(sentence)
        return Response(403, {"content-type": "application/json"}, Forbidden(sentence).status().encode())

    def _allows(self, part: str, rules: Iterable[PolicyRule], info: RequestInfo) -> bool:
        asked = part, info.verb, info.group, info.resource, info.subresource
        if asked not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[asked] = [rule for rule in rules if covers(rule, info)]
        return any(is_for_object(rule, info) for rule in self._known[asked])

    def _remember(self, sentence: str) -> None:
        if sentence in self._refused or len(self._refused) < _MOST_REFUSED:
            self._refused[sentence] = None
        else:
            self._unnamed += 1


class PermittedTransport:
    """A transport that rejects requests that are not permitted."""

    def __init__(self, inner: Transport, enforcer: RBACEnforcer) -> None:
        self.host = inner.host
        self._inner = inner
        self._enforcer = enforcer

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""
        return self._inner.authorities

    async def send(self, request: Request) -> Response:
        """Return the response of the server, or a 403 response. Raises TransportError."""
        if (refusal := self._enforcer.refusal(request)) is not None:
            return refusal
        response = await self._inner.send(request)
        if response.status == 201 and request.method in _WITHOUT_CREATE:
            return self._enforcer.refusal_of_create(request) or response
        return response

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """Return the response of the server and its stream, or a 403 response. Raises TransportError."""
        refusal = self._enforcer.refusal(request)
        return (refusal, None) if refusal else await self._inner.upgrade(request)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()


def allows(rule: PolicyRule, info: RequestInfo) -> bool:
    """Return whether a rule allows a request, with the semantics of RBAC."""
    return covers(rule, info) and is_for_object(rule, info)


def is_for_object(rule: PolicyRule, info: RequestInfo) -> bool:
    """Return whether a rule matches the namespace and the name of a request."""
    return rule.namespace in ("", info.namespace) and (not rule.names or info.name in rule.names)


def covers(rule: PolicyRule, info: RequestInfo) -> bool:
    """Return whether a rule matches the verb and the resource of a request, for any object."""
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    names = {"*", resource, *([f"*/{info.subresource}"] if info.subresource else [])}
    return (
        not {"*", info.verb}.isdisjoint(rule.verbs)
        and not {"*", info.group}.isdisjoint(rule.groups)
        and not names.isdisjoint(rule.resources)
    )


def _words(info: RequestInfo) -> str:
    below = f"/{info.subresource}" if info.subresource else ""
    what = "/".join(dict.fromkeys(filter(None, (info.namespace, info.name))))
    return f"{info.verb} {info.resource}{below} of the group {info.group!r}{what and f' ({what})'}"
