"""EgressSelectorConfiguration: fields and validation."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from apiserver_stub.common.config_file import ConfigDocument, ConfigModel, read_config, refuse_causes
from apiserver_stub.common.error_list import ErrorList, FieldPath
from controller_manager.common.api.platform import GROUP_DOMAIN

KIND = "EgressSelectorConfiguration"
DIRECT, HTTP_CONNECT, GRPC = "Direct", "HTTPConnect", "GRPC"
CONTROL_PLANE, CLUSTER, ETCD = "controlplane", "cluster", "etcd"
_ALIASES: Mapping[str, str] = MappingProxyType({"master": CONTROL_PLANE, "datastore": ETCD})
_CONNECTION: FieldPath = ((None, "service"), "connection")
_TLS: FieldPath = (_CONNECTION, "tlsConfig")


class TLSConfig(ConfigModel):
    """The files of TLS with a proxy; without `ca_bundle` the authorities of the system are believed."""

    ca_bundle: str = ""
    client_key: str = ""
    client_cert: str = ""
    tls_server_name: str = ""


class TCPTransport(ConfigModel):
    """A proxy at a URL."""

    url: str = ""
    tls_config: TLSConfig | None = None


class UDSTransport(ConfigModel):
    """A proxy at a Unix socket."""

    uds_name: str = ""


class Transport(ConfigModel):
    """The place of a proxy: one of the two."""

    tcp: TCPTransport | None = None
    uds: UDSTransport | None = None


class Connection(ConfigModel):
    """The protocol and address of a proxy."""

    proxy_protocol: str = ""
    transport: Transport | None = None


class EgressSelection(ConfigModel):
    """The connection to the servers of one network."""

    name: str = ""
    connection: Connection = Connection()

    @property
    def network(self) -> str:
        """Return the current name of the network."""
        name = self.name.lower()
        return _ALIASES.get(name, name)


class EgressSelectorConfiguration(ConfigDocument):
    """The whole document."""

    egress_selections: tuple[EgressSelection, ...] = ()


def read_egress_selections(path: Path) -> tuple[EgressSelection, ...]:
    """Return the selections in a file. Raises `ConfigFileError`."""
    group = f"apiserver.{GROUP_DOMAIN}"
    types = {f"{group}/{version}": EgressSelectorConfiguration for version in ("v1beta1", "v1alpha1")}
    found = read_config(path, KIND, types).egress_selections
    errors = ErrorList()
    judge(found, errors)
    refuse_causes(path, errors.causes)
    return found


def judge(selections: tuple[EgressSelection, ...], errors: ErrorList) -> None:
    """Collect the validation errors of selections. As in kube-apiserver, paths identify the selection only for errors
    of its name.
    """
    for one in selections:
        _check_connection(one.connection, errors)
    seen: set[str] = set()
    for at, one in enumerate(selections):
        if one.network in seen:
            errors.duplicate((_CONNECTION, at), one.network)
        elif one.network not in (CONTROL_PLANE, CLUSTER, ETCD):
            errors.unsupported(_CONNECTION, one.network, sorted((CONTROL_PLANE, CLUSTER, ETCD)))
        seen.add(one.network)


def _check_connection(connection: Connection, errors: ErrorList) -> None:
    transport, place = connection.transport, (_CONNECTION, "transport")
    match connection.proxy_protocol:
        case "Direct":
            if transport is not None:
                errors.invalid(place, "direct", "must not be set for protocol Direct")
        case "HTTPConnect" | "GRPC" if transport is None:
            errors.required(place, f"required for protocol {connection.proxy_protocol}")
        case "HTTPConnect":
            _check_http_connect(transport or Transport(), errors)
        case "GRPC":
            if transport is None or transport.uds is None:
                errors.required((_CONNECTION, "uds"), "required for protocol GRPC")
            else:
                _check_uds(transport.uds, errors)
        case protocol:
            errors.unsupported((_CONNECTION, "protocol"), protocol, (DIRECT, HTTP_CONNECT, GRPC))


def _check_http_connect(transport: Transport, errors: ErrorList) -> None:
    tcp, uds = transport.tcp, transport.uds
    if tcp is not None and uds is not None:
        errors.invalid((_CONNECTION, "tcp"), tcp.url, "must not be set together with uds")
    elif tcp is not None:
        _check_tcp(tcp, errors)
    elif uds is not None:
        _check_uds(uds, errors)
    else:
        errors.required((_CONNECTION, "tcp"), "tcp or uds is required")


def _check_uds(uds: UDSTransport, errors: ErrorList) -> None:
    if not uds.uds_name:
        errors.invalid((_CONNECTION, "udsName"), "nil", "must name a Unix socket")


def _check_tcp(tcp: TCPTransport, errors: ErrorList) -> None:
    place = (_CONNECTION, "url")
    if not tcp.url.startswith(("http://", "https://")):
        errors.invalid(place, tcp.url, "must begin with http:// or https://")
        return
    if not _is_place(tcp.url):
        errors.invalid(place, tcp.url, "must have a host and a valid port")
    if tcp.url.startswith("https://"):
        _check_tls(tcp.tls_config, errors)
    elif tcp.tls_config is not None:
        errors.invalid(_TLS, "nil", "must not be set if the URL begins with http://")


def _is_place(url: str) -> bool:
    try:
        found = urlsplit(url)
        return bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def _check_tls(tls: TLSConfig | None, errors: ErrorList) -> None:
    if tls is None:
        errors.required(_TLS, "required if the URL begins with https://")
        return
    if tls.ca_bundle:
        _check_file((_TLS, "caBundle"), tls.ca_bundle, errors)
    for field, file in (("clientCert", tls.client_cert), ("clientKey", tls.client_key)):
        if file:
            _check_file((_TLS, field), file, errors)
        else:
            errors.invalid((_TLS, field), "nil", "must be a file: the proxy authenticates clients by certificate")


def _check_file(at: FieldPath, file: str, errors: ErrorList) -> None:
    if not Path(file).exists():
        errors.invalid(at, file, "no such file")
