"""Configuration of the connection to an API server, as plain values; `kubeconfig` reads them from files."""

from dataclasses import dataclass, field

from controller_manager.transport.transport import Endpoint


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials (KEP-541, `client.authentication.k8s.io`)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """The sources of credentials; certificate and key are PEM, and a file goes before data."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate: bytes = field(default=b"", repr=False)
    certificate_file: str = ""
    key: bytes = field(default=b"", repr=False)
    key_file: str = ""
    plugin: ExecPlugin | None = None


@dataclass(frozen=True, slots=True)
class ClientConfig(Endpoint):
    """One API server and one identity."""

    namespace: str = ""
    identity: Identity = Identity()
