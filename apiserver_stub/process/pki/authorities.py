"""The certificate authorities of the server, one per purpose, and the certificates and kubeconfigs they issue."""

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.files import write_atomically
from controller_manager.common.serving.tls import KeyPair, alternative_name, check_authority, issue, make_ca

_CLUSTER = "cluster"
YEAR = timedelta(days=365)
"""The time for which a certificate is valid."""


class CertificateIdentity(msgspec.Struct, frozen=True):
    """The user and the groups that a client certificate names."""

    user: str
    groups: tuple[str, ...] = ()


PROXY = CertificateIdentity("front-proxy-client")
"""The client identity of this server as a proxy to extension servers."""
ADMIN = CertificateIdentity("kubernetes-admin", (ADMIN_GROUP,))


class Authority:
    """A certificate authority in two files of a folder, created if they do not exist.

    Raises OSError, and ValueError if the files are not a CA certificate and its key.
    """

    def __init__(self, folder: Path, name: str, common_name: str) -> None:
        self.certificate_file, self.key_file = folder / f"{name}.crt", folder / f"{name}.key"
        if not self.certificate_file.exists():
            make_ca(common_name).write(self.certificate_file, self.key_file)
        self.pair = self._read()

    def reload(self) -> bool:
        """Reload the files and return whether they changed. Raises like the constructor; then the old pair stays in
        use.
        """
        before, self.pair = self.pair, self._read(self.pair)
        return self.pair != before

    def issued(self, certificate: x509.Certificate) -> bool:
        """Return whether the current key of this authority signed the certificate."""
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(self.pair.certificate))
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def _read(self, known: KeyPair | None = None) -> KeyPair:
        pair = KeyPair(self.certificate_file.read_bytes(), self.key_file.read_bytes())
        if pair != known:
            try:
                check_authority(pair)
            except ValueError as error:
                raise ValueError(f"{self.certificate_file} and {self.key_file}: {error}") from error
        return pair


class Authorities:
    """The authorities of a cluster in one folder. Each is trusted for one purpose only.

    | files          | signs                                          | trusted by                               |
    |----------------|------------------------------------------------|------------------------------------------|
    | ca             | the certificate of the API server              | clients of the API server, pods included |
    | client-ca      | certificates of clients of the API server      | the API server and controller managers   |
    | front-proxy-ca | certificates of authenticating proxies         | extension servers, controller managers   |
    | signing-ca     | certificates requested from other signers      | clients configured to do so              |

    `lifetime` applies to issued certificates. Raises like `Authority`.
    """

    def __init__(self, folder: Path, lifetime: timedelta = YEAR) -> None:
        self._folder = folder
        self._enough = lifetime / 3
        self._days = lifetime / timedelta(days=1)
        self.serving = Authority(folder, "ca", "apiserver-ca")
        self.clients = Authority(folder, "client-ca", "client-ca")
        self.front_proxy = Authority(folder, "front-proxy-ca", "front-proxy-ca")
        self.signing = Authority(folder, "signing-ca", "signing-ca")

    def reload(self) -> bool:
        """Reload authorities whose files were replaced; return whether any changed. Raises like `Authority`."""
        replaced = [one.reload() for one in (self.serving, self.clients, self.front_proxy, self.signing)]
        return any(replaced)

    def server_files(self, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Return certificate and key of a server at `hosts`: those in the folder while they serve, else new ones."""
        cert_file, key_file = self._folder / "apiserver.crt", self._folder / "apiserver.key"
        if not (key_file.exists() and self._serves(cert_file, hosts)):
            pair = issue(self.serving.pair, "apiserver", hosts=hosts, days=self._days)
            pair.write(cert_file, key_file)
        return cert_file, key_file

    def proxy_pair(self, held: KeyPair | None = None) -> KeyPair:
        """Return the client certificate of this server as a proxy: `held` while it is valid for long enough, else a new
        one.
        """
        if held is not None:
            certificate = x509.load_pem_x509_certificate(held.certificate)
            if self.front_proxy.issued(certificate) and self._lasts(certificate):
                return held
        return issue(self.front_proxy.pair, PROXY.user, client=True, days=self._days)

    def kubeconfig(self, file: Path, server: str, identity: CertificateIdentity, *, trust: bytes = b"") -> None:
        """Write a kubeconfig that connects `identity` to the URL `server`. A file that does so for long enough is not
        changed.

        `trust` replaces the serving CA for a server with a certificate of another CA.
        """
        trust = trust or self.serving.pair.certificate
        if not self._connects(file, server, trust):
            client = self._issue_client(identity)
            key = {"client-certificate-data": _base64(client.certificate), "client-key-data": _base64(client.key)}
            cluster = {"server": server, "certificate-authority-data": _base64(trust)}
            _write_kubeconfig(file, cluster, key, identity.user)

    def renewable_kubeconfig(self, file: Path, server: str, identity: CertificateIdentity) -> None:
        """Write a kubeconfig in the folder for a long-running process. It refers to the files of the serving CA and of
        the client certificate and key, so that the process can reload them.
        """
        held = file.with_suffix(".pem")
        if not self._certifies(_read_certificate(held)):
            client = self._issue_client(identity)
            write_atomically(held, client.certificate + client.key)
        key = {"client-certificate": held.name, "client-key": held.name}
        cluster = {"server": server, "certificate-authority": self.serving.certificate_file.name}
        _write_kubeconfig(file, cluster, key, identity.user)

    def _issue_client(self, identity: CertificateIdentity) -> KeyPair:
        pair = self.clients.pair
        return issue(pair, identity.user, identity.groups, client=True, days=self._days)

    def _serves(self, cert_file: Path, hosts: Sequence[str]) -> bool:
        certificate = _read_certificate(cert_file)
        if certificate is None or not self.serving.issued(certificate):
            return False
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, x509.ExtensionNotFound):
            return False
        return self._lasts(certificate) and all(alternative_name(host) in names for host in hosts)

    def _connects(self, file: Path, server: str, trust: bytes) -> bool:
        try:
            document = yaml.safe_load(file.read_bytes())
            cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
            pem = base64.b64decode(user["client-certificate-data"])
            certificate = x509.load_pem_x509_certificate(pem)
            known = base64.b64decode(cluster["certificate-authority-data"])
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            return False
        return cluster.get("server") == server and known == trust and self._certifies(certificate)

    def _certifies(self, certificate: x509.Certificate | None) -> bool:
        return certificate is not None and self.clients.issued(certificate) and self._lasts(certificate)

    def _lasts(self, certificate: x509.Certificate) -> bool:
        """Return whether a certificate is valid for more than a third of its lifetime. If it is not valid yet, the
        clock was set back after it was issued.
        """
        now = utc_now()
        return certificate.not_valid_before_utc <= now and certificate.not_valid_after_utc - now > self._enough


def _read_certificate(file: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None


def _write_kubeconfig(file: Path, cluster: Mapping[str, str], user: Mapping[str, str], name: str) -> None:
    """Write a kubeconfig with one cluster, one user and one context. A file with the same content is not changed."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": name}}],
        "current-context": _CLUSTER,
    }
    data = yaml.safe_dump(document, sort_keys=False).encode()
    if not file.exists() or file.read_bytes() != data:
        write_atomically(file, data)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
