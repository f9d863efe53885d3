"""Client configuration for an API server, as plain values; `kubeconfig` reads it from files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller_manager.common.api.wire import escape_header_key
from controller_manager.common.transport.transport import IMPERSONATE_USER, Endpoint


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A credential plugin (KEP-541, `client.authentication.k8s.io`). With `provide_cluster_info` it also gets the
    fields of `cluster_info`.
    """

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    install_hint: str = ""
    cluster_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to impersonate; requests act as this user instead of the owner of the credentials."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def headers(self) -> Iterator[tuple[str, str]]:
        """Yield the impersonation headers (Kubernetes documentation, User impersonation)."""
        yield IMPERSONATE_USER, self.user
        if self.uid:
            yield "impersonate-uid", self.uid
        for group in self.groups:
            yield "impersonate-group", group
        for key, values in self.extra:
            for value in values:
                yield f"impersonate-extra-{escape_header_key(key)}", value


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The sources of credentials. Certificate and key are PEM. A file takes precedence over data."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate: bytes = field(default=b"", repr=False)
    certificate_file: str = ""
    key: bytes = field(default=b"", repr=False)
    key_file: str = ""
    plugin: ExecPlugin | None = None
    impersonation: Impersonation | None = None

    @property
    def impersonate(self) -> tuple[tuple[str, str], ...]:
        """Return the impersonation headers; empty without impersonation."""
        return tuple(self.impersonation.headers()) if self.impersonation else ()


@dataclass(frozen=True, slots=True)
class ClientConfig(Endpoint):
    """One API server and one identity."""

    namespace: str = ""
    identity: ClientIdentity = ClientIdentity()
