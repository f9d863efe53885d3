"""Holds managers to what their controllers declare: a request that no rule allows is refused, as RBAC would."""

from collections.abc import Iterable, Mapping, Sequence

from apiserver_stub.parse import RequestInfo, last_values, parse
from controller_manager.api.errors import ApiError, Forbidden
from controller_manager.api.wire import DuplexStream, Request, Response
from controller_manager.app.catalog import AnySpec
from controller_manager.app.permissions import EVENTS, reads
from controller_manager.client import Transport
from controller_manager.controller import PolicyRule


class RBACEnforcer:
    """What each part of a manager may do; parts are told apart by the user agent `manager/part`.

    Parts nobody declares anything for, such as the election, may do everything. `refused` are the requests that were
    not allowed, in words.
    """

    def __init__(self, specs: Sequence[AnySpec]) -> None:
        self.refused: dict[str, None] = {}
        self._rules: Mapping[str, Sequence[PolicyRule]] = {
            "informers": reads(specs),
            "events": EVENTS,
            **{spec.name: spec.rbac for spec in specs},
        }
        self._known: dict[tuple[str, RequestInfo], bool] = {}

    def refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not allowed."""
        part = request.headers.get("user-agent", "").rpartition("/")[2]
        rules = self._rules.get(part)
        if rules is None:
            return None
        try:
            route = parse(request.method, request.path, last_values(request.query))
        except ApiError:
            return None  # the server knows better what is wrong with it
        if not route.resource or self._allows(part, rules, route):
            return None
        sentence = f"{part} did not declare that it may {_words(route)}"
        self.refused.setdefault(sentence)
        return Response(403, {"content-type": "application/json"}, Forbidden(sentence).status().encode())

    def _allows(self, part: str, rules: Iterable[PolicyRule], route: RequestInfo) -> bool:
        asked = part, route._replace(path="", namespace="")
        if asked not in self._known:
            self._known[asked] = any(allows(rule, route) for rule in rules)
        return self._known[asked]


class PermittedTransport:
    """A transport that carries what is permitted."""

    def __init__(self, inner: Transport, permits: RBACEnforcer) -> None:
        self.host, self.authorities = inner.host, inner.authorities
        self._inner = inner
        self._permits = permits

    async def send(self, request: Request) -> Response:
        """The answer of the server, or a refusal. Raises TransportError."""
        return self._permits.refusal(request) or await self._inner.send(request)

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """The answer of the server with its stream, or a refusal. Raises TransportError."""
        refusal = self._permits.refusal(request)
        return (refusal, None) if refusal else await self._inner.upgrade(request)

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()


def allows(rule: PolicyRule, route: RequestInfo) -> bool:
    """Whether a rule allows a request, as RBAC understands rules."""
    resource = f"{route.resource}/{route.subresource}" if route.subresource else route.resource
    names = {"*", resource, *([f"*/{route.subresource}"] if route.subresource else [])}
    return (
        not {"*", route.verb}.isdisjoint(rule.verbs)
        and not {"*", route.group}.isdisjoint(rule.groups)
        and not names.isdisjoint(rule.resources)
        and (not rule.names or route.name in rule.names)
    )


def _words(route: RequestInfo) -> str:
    below = f"/{route.subresource}" if route.subresource else ""
    what = "/".join(dict.fromkeys(filter(None, (route.namespace, route.name))))
    return f"{route.verb} {route.resource}{below} of the group {route.group!r}{what and f' ({what})'}"
