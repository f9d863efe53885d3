"""The server's own certificate authority and what it issues: its certificate, and kubeconfigs for its clients."""

import base64
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.base.clock import utc_now
from controller_manager.serving.files import write_atomically
from controller_manager.serving.tls import Pair, issue, make_ca

_RENEW_BEFORE = timedelta(days=30)
_CLUSTER = "cluster"
_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a client certificate names."""

    user: str
    groups: tuple[str, ...] = ()


ADMIN = Identity("kubernetes-admin", (ADMIN_GROUP,))


class Authority:
    """A certificate authority kept in a folder; made there when the folder has none. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate_file, self.key_file = folder / "ca.crt", folder / "ca.key"
        self._ca = self._load_or_make(self.key_file)

    def server_files(self, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Certificate and key of a server at `hosts`: those in the folder while they serve, otherwise new ones."""
        cert_file, key_file = self._folder / "apiserver.crt", self._folder / "apiserver.key"
        if not (key_file.exists() and self._serves(cert_file, hosts)):
            issue(self._ca, "apiserver", hosts=hosts).write(cert_file, key_file)
        return cert_file, key_file

    def kubeconfig(self, file: Path, server: str, identity: Identity, *, trust: bytes = b"") -> None:
        """Have `file` connect `identity` to the URL `server`; it is left alone while it does.

        `trust` replaces the authority's certificate for a server that shows one of another origin.
        """
        trust = trust or self._ca.certificate
        if not self._connects(file, server, trust):
            client = issue(self._ca, identity.user, identity.groups, client=True)
            document = _kubeconfig_document(server, trust, client, identity.user)
            write_atomically(file, yaml.safe_dump(document, sort_keys=False).encode())

    def _load_or_make(self, key_file: Path) -> Pair:
        if self.certificate_file.exists() and key_file.exists():
            return Pair(self.certificate_file.read_bytes(), key_file.read_bytes())
        ca = make_ca("apiserver-ca")
        ca.write(self.certificate_file, key_file)
        return ca

    def _serves(self, cert_file: Path, hosts: Sequence[str]) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound):
            return False
        named = {str(name.value) for name in names}
        return self._lasts(certificate) and named >= {_canonical(host) for host in hosts}

    def _connects(self, file: Path, server: str, trust: bytes) -> bool:
        try:
            document = yaml.safe_load(file.read_bytes())
            cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
            pem = base64.b64decode(user["client-certificate-data"])
            certificate = x509.load_pem_x509_certificate(pem)
            known = base64.b64decode(cluster["certificate-authority-data"])
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            return False
        return cluster.get("server") == server and known == trust and self._lasts(certificate)

    def _lasts(self, certificate: x509.Certificate) -> bool:
        """Whether this authority issued the certificate and it is valid for a while yet."""
        authority = x509.load_pem_x509_certificate(self._ca.certificate)
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return certificate.not_valid_after_utc - _RENEW_BEFORE > utc_now()


def _kubeconfig_document(server: str, trust: bytes, client: Pair, user: str) -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and a context of both."""
    credentials = {"client-certificate-data": _base64(client.certificate), "client-key-data": _base64(client.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": {"server": server, "certificate-authority-data": _base64(trust)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": user}}],
        "current-context": _CLUSTER,
    }


def server_hosts(bind: str, advertised: str, cluster_ip: str) -> list[str]:
    """Every name and address by which clients reach the server."""
    host = socket.gethostname()
    names = ["localhost", "127.0.0.1", "::1", *_SERVICE_NAMES, cluster_ip, advertised]
    names += [host] if host.isascii() else []
    names += [] if ip_address(bind).is_unspecified else [bind]
    return list(dict.fromkeys(names))


def server_url(bind: str, port: int) -> str:
    """The URL for clients on this machine."""
    address = ip_address(bind)
    host = "127.0.0.1" if address.is_unspecified else f"[{bind}]" if address.version == 6 else bind
    return f"https://{host}:{port}"


def reachable_address(bind: str) -> str:
    """The address others reach this machine at: `bind` if it is one, otherwise that of the default route."""
    address = ip_address(bind)
    if not address.is_unspecified and not address.is_loopback:
        return bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; an address of documentation (RFC 5737)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _canonical(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
