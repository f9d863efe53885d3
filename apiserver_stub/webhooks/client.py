"""The client of webhooks: POST requests with JSON responses, to a URL or a service of the cluster.

Each configuration has its own connections, so that one hanging webhook does not block others. Credentials are sent only
to webhooks they are configured for. Redirects within the webhook's server are followed; others are invalid responses.
"""

import asyncio
import socket
import ssl
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urljoin, urlsplit
from weakref import WeakValueDictionary

import msgspec

from apiserver_stub.common.spans import current_span
from apiserver_stub.encode import json
from apiserver_stub.webhooks.egress import DIRECT, EgressSelector
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.api.errors import (
    ApiError,
    BadRequest,
    RequestEntityTooLarge,
    Status,
    what_clients_make_of,
)
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Response
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.transport.config import ClientIdentity
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.common.transport.credentials import Credentials, from_identity, read_files
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.response_parser import ServerDisconnected
from controller_manager.common.transport.transport import NO_CREDENTIAL, Credential, Endpoint, client_context

_HTTPS = 443
_ITSELF = ("kubernetes.default.svc", _HTTPS)
_HEADERS = ("user-agent: kube-apiserver-admission", "accept: application/json, */*", "content-type: application/json")
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)  # OpenSSL: self-signed, or unknown issuer
_FAILURES = (OSError, TimeoutError, ApiError, CannotStart)
_REDIRECTS, _AS_IT_IS = (301, 302, 303, 307, 308), (307, 308)
_MOST_REDIRECTS = 10
_MOST_TARGETS = 1024  # cached request targets
_ATTEMPTS = 11  # of a call, if the webhook responds with Retry-After
# Error texts of Go decoders for documents that are not objects, and the registered schemes.
_NO_DOCUMENT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct "
    '{{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }}'
)
_SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:71"
Identify = Callable[[str, int], ClientIdentity | None]
"""Returns the client identity for the webhook at a host and port; None without credentials."""
_STATUS = msgspec.json.Decoder(Status)


class WebhookError(Exception):
    """A webhook call failed or the response is invalid; `code` is that of an error response, else 503."""

    def __init__(self, message: str, code: int = 503) -> None:
        super().__init__(message)
        self.code = code


class WebhookLimits(msgspec.Struct, frozen=True):
    """The limits per webhook: concurrent calls and bytes of a response; and the number of cached configurations."""

    calls: int = 32
    answer: int = 8 << 20
    kept: int = 200


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """The place of a webhook: host, port and path or, with a `namespace`, the service `host` in it; an empty `ca` (PEM)
    means the authorities of the system.
    """

    host: str
    port: int = _HTTPS
    path: str = "/"
    namespace: str = ""
    ca: bytes = field(default=b"", repr=False)
    scheme: str = "https"

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        """Return the location in a `clientConfig`. Raises `WebhookError`."""
        try:
            ca = b64decode(tree.get("caBundle") or "").strip()
            if service := tree.get("service"):
                path, port = service.get("path") or "/", service.get("port") or _HTTPS
                return cls(service["name"], port, path, service["namespace"], ca)
            url = urlsplit(tree.get("url") or "")
            port = url.port or _HTTPS
        except ValueError as error:
            raise WebhookError(f"Unparsable URL: {error}") from None
        if not url.hostname:
            raise WebhookError("webhook configuration must have either service or URL")
        return cls(url.hostname, port, url.path or "/", "", ca, url.scheme)

    @property
    def server_name(self) -> str:
        """The name that the certificate of the webhook is for."""
        return f"{self.host}.{self.namespace}.svc" if self.namespace else self.host

    @property
    def authority(self) -> str:
        """Host and port for URLs; the default port is omitted in URLs without a service."""
        name = f"[{self.host}]" if ":" in self.host else self.server_name
        return name if self.port == _HTTPS and not self.namespace else f"{name}:{self.port}"

    def url(self, target: str) -> str:
        """Return the URL of path and query there."""
        return f"{self.scheme}://{self.authority}{target}"

    def target(self, timeout: float) -> str:
        """Return path and query of a call with a timeout of `timeout` seconds."""
        return _target(self.path, timeout)


@lru_cache(_MOST_TARGETS)
def _target(path: str, timeout: float) -> str:
    return f"{quote(path, safe='/:@%')}?timeout={timeout:g}s"


class _Webhook:
    """The connections of one configuration, and the number of calls that use them."""

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        limits: WebhookLimits,
        dialer: Dialer | None,
        credentials: Credentials | None = None,
    ) -> None:
        self.tls = tls
        self.credentials = credentials
        self.pool = ConnectionPool(limits.calls, 30.0, 30.0, limits.answer, dialer)
        self.calls = 0


class WebhookClient:
    """Calls webhooks; `close` ends running calls. Services are reached through the dialer of `egress` for the cluster,
    URLs through that for the control plane, and this server directly. `identify` returns the client identity by host
    and port; token files are reloaded, certificates are read when the connections to a webhook are first opened.
    """

    def __init__(
        self,
        resolver: ServiceResolver,
        limits: WebhookLimits | None = None,
        egress: EgressSelector = DIRECT,
        identify: Identify | None = None,
    ) -> None:
        self._egress = egress
        self._identify = identify
        self._resolver = resolver
        self._limits = limits or WebhookLimits()
        self._webhooks: dict[WebhookConfig, _Webhook] = {}  # most recently used last
        self._contexts: WeakValueDictionary[tuple[bytes, bytes], ssl.SSLContext] = WeakValueDictionary()

    async def post(self, config: WebhookConfig, body: bytes, timeout: float) -> bytes:
        """Return the response of the webhook to a document within `timeout` seconds; never empty. Raises
        `WebhookError`.
        """
        try:
            webhook = self._take(config)
        except CannotStart as error:
            raise WebhookError(str(error)) from error
        target, span = config.target(timeout), current_span()
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            shown = () if webhook.credentials is None else await _identifying(webhook.credentials, deadline)
            if span is None:
                response = await self._ask(webhook, config, _Message(target, body, headers=shown), deadline)
            else:
                with span.client("POST", config.url(target)) as call:
                    message = _Message(target, body, headers=(*call.headers.items(), *shown))
                    response = await self._ask(webhook, config, message, deadline)
                    call.note({"http.response.status_code": response.status})
        except _FAILURES as error:
            raise WebhookError(f'Post "{config.url(target)}": {_reason(config, error)}') from error
        finally:
            webhook.calls -= 1
        return content(response)

    async def close(self) -> None:
        """Close all connections; running calls fail."""
        for webhook in self._webhooks.values():
            webhook.pool.close()
        self._webhooks.clear()

    async def _ask(self, webhook: _Webhook, config: WebhookConfig, message: "_Message", deadline: float) -> Response:
        """Return the response after redirects and retries (Retry-After), both limited. Raises `WebhookError` for too
        many.
        """
        redirects, attempts = 0, 0
        while True:
            request = message.written(config)
            response = await webhook.pool.send(
                self._origin(webhook, config), request, idempotent=True, deadline=deadline
            )
            if 200 <= response.status < 300:
                return response
            attempts += 1
            again = response.headers.get("retry-after", "")
            if (response.status == 429 or response.status >= 500) and again.isdecimal() and attempts < _ATTEMPTS:
                async with asyncio.timeout_at(deadline):
                    await asyncio.sleep(float(again))
                continue
            redirected = message.redirected(config, response)
            if redirected is None:
                return response
            message, attempts, redirects = redirected, 0, redirects + 1
            if redirects == _MOST_REDIRECTS:
                raise WebhookError(f"stopped after {_MOST_REDIRECTS} redirects")

    def _origin(self, webhook: _Webhook, config: WebhookConfig) -> ConnectionTarget:
        if not config.namespace:
            return ConnectionTarget(config.host, config.port, webhook.tls)
        host, port, name = self._resolver.resolve(config.namespace, config.host, config.port)
        return ConnectionTarget(host, port, webhook.tls, name)

    def _context(self, config: WebhookConfig, shown: Credential) -> ssl.SSLContext | None:
        """Return a TLS context for the authorities of a configuration. Cached, because loading the system's takes
        milliseconds.
        """
        if config.scheme != "https":
            return None
        key = config.ca, shown.certificate
        found = self._contexts.get(key)
        if found is None:
            endpoint = Endpoint(f"https://{config.authority}", config.ca)
            found = self._contexts[key] = client_context(endpoint, shown.certificate, shown.key)
        return found

    def _open(self, config: WebhookConfig) -> _Webhook:
        if (config.server_name, config.port) == _ITSELF:
            dialer = None
        else:
            dialer = self._egress.cluster if config.namespace else self._egress.control_plane
        identity = self._identify(config.server_name, config.port) if self._identify is not None else None
        if identity is None:
            return _Webhook(self._context(config, NO_CREDENTIAL), self._limits, dialer)
        tls = self._context(config, read_files(identity, wall_seconds()))
        return _Webhook(tls, self._limits, dialer, Credentials(from_identity(identity)))

    def _take(self, config: WebhookConfig) -> _Webhook:
        """Return the connections of a configuration for one more call. If there are too many, unused ones are closed,
        the least recently used first.
        """
        webhook = self._webhooks.pop(config, None) or self._open(config)
        self._webhooks[config] = webhook
        webhook.calls += 1
        if len(self._webhooks) > self._limits.kept:
            self._close_unused()
        return webhook

    def _close_unused(self) -> None:
        for old in [each for each, kept in self._webhooks.items() if not kept.calls]:
            if len(self._webhooks) <= self._limits.kept:
                break
            self._webhooks.pop(old).pool.close()


async def _identifying(credentials: Credentials, deadline: float) -> tuple[tuple[str, str], ...]:
    """Return the header lines that name the caller: its token, and the user it acts as. Raises `ConfigError` and
    `TimeoutError`.
    """
    async with asyncio.timeout_at(deadline):
        credential = await credentials.current()
    token = (("authorization", f"Bearer {credential.token}"),) if credential.token else ()
    return *token, *credential.impersonate


def decode_review(data: bytes, group: str, versions: Sequence[str], kind: str) -> Tree:
    """Return the document in a webhook response. Raises `WebhookError` if it is not an object, has too many values, or
    is not of `kind` in the first of `versions`, which are the known versions of `group`.
    """
    try:
        tree = json.decode(data)
    except RequestEntityTooLarge as refusal:
        raise WebhookError(refusal.message) from None
    except BadRequest:
        tree = ""  # unquoted text is a string in YAML
    if not isinstance(tree, dict):
        raise WebhookError(_NO_DOCUMENT.format(json_type(tree)))
    named, of = tree.get("kind") or kind, tree.get("apiVersion") or f"{group}/{versions[0]}"
    if named != kind or of not in {f"{group}/{version}" for version in versions}:
        raise WebhookError(f'no kind "{named}" is registered for version "{of}" in scheme "{_SCHEME}"')
    version = of.rpartition("/")[2]
    if version != versions[0]:
        raise WebhookError(f"converting ({version}.{kind}) to ({versions[0]}.{kind}): unknown conversion")
    return tree


def type_of_review(tree: Mapping[str, Any]) -> str:
    """Return the type that a document names, as Go writes one."""
    group, _, version = str(tree.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={tree.get('kind') or ''}"


def json_type(value: object) -> str:
    """Return the name in Go decoders of a JSON value that is not an object."""
    types = {bool: "bool", str: "string", list: "array"}
    return types.get(type(value), "number")


class _Message(NamedTuple):
    """A request (RFC 9112) with path and query, and the headers of tracing and credentials."""

    target: str
    body: bytes
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()

    def written(self, config: WebhookConfig) -> bytes:
        """Return the bytes of the request."""
        head = _head(self.method, self.target, config.authority)
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers).encode()
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(self.body), more, self.body)

    def redirected(self, config: WebhookConfig, response: Response) -> "_Message | None":
        """Return the message after a redirect within the same server (RFC 9110, section 15.4); None without one."""
        location = response.headers.get("location")
        if response.status not in _REDIRECTS or not location:
            return None
        base = f"{config.scheme}://{config.authority}"
        try:
            there = urlsplit(urljoin(f"{base}{self.target}", location))
        except ValueError:
            return None
        if f"{there.scheme}://{there.netloc}" != base:
            return None
        target = quote(there.path or "/", safe="/:@%") + (
            f"?{quote(there.query, safe='=&/:@%+,')}" if there.query else ""
        )
        same = response.status in _AS_IT_IS
        return self._replace(target=target, body=self.body if same else b"", method=self.method if same else "GET")


@lru_cache(_MOST_TARGETS)
def _head(method: str, target: str, authority: str) -> bytes:
    """Return the request line and common headers."""
    lines = [f"{method} {target} HTTP/1.1", f"host: {authority}"]
    return "".join(f"{line}\r\n" for line in (*lines, *_HEADERS)).encode()


def content(response: Response) -> bytes:
    """Return the document in a response. Raises `WebhookError` for an error status or an empty body."""
    body = response.body
    assert isinstance(body, bytes)
    if not 200 <= response.status <= 206:
        raise WebhookError(_refusal(response.status, response.headers, body), response.status)
    if not body:
        media = response.headers.get("content-type", "")
        raise WebhookError(f"0-length response with status code: {response.status} and content type: {media}")
    return body


def failure_status(body: bytes) -> Status | None:
    """Return the failure `Status` in a body, if it is one."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return status if status.kind == "Status" and status.status != "Success" else None


def _refusal(code: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return the message of a `Status` in the body, else the text that clients use for the status code."""
    status = failure_status(body)
    if status is not None and status.message:
        return status.message
    is_text = headers.get("content-type", "").startswith("text/")
    text = body[:2048].decode("utf-8", "replace").strip() if is_text else "unknown"
    return what_clients_make_of(code, text)


def _reason(config: WebhookConfig, error: BaseException) -> str:
    """Return the reason of a failed call, in the wording of Go clients."""
    match error:
        case ApiError():
            return error.message
        case TimeoutError():
            return "context deadline exceeded"
        case ssl.SSLCertVerificationError():
            unknown = error.verify_code in _UNKNOWN_AUTHORITY
            why = "certificate signed by unknown authority" if unknown else error.verify_message
            return f"tls: failed to verify certificate: x509: {why}"
        case ServerDisconnected():
            return "EOF"
        case ConnectionRefusedError():
            return f"dial tcp {config.host}:{config.port}: connect: connection refused"
        case socket.gaierror():
            return f"dial tcp: lookup {config.host}: no such host"
    return str(error) or type(error).__name__
