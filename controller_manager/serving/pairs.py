"""Where the certificate and the key of a server come from: files somebody renews, or a self-signed pair of our own."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from controller_manager.base.clock import utc_now
from controller_manager.serving.tls import KeyPair, alternative_name, issue, make_ca

_RENEW_BEFORE = timedelta(days=7)


class PairSource(Protocol):
    """A pair that may change while it is served."""

    @property
    def name(self) -> str:
        """What to call it in a sentence."""

    def read(self) -> KeyPair:
        """The pair as it should be shown now; raises OSError or ValueError."""


class FilePair:
    """Two files (PEM), read each time: whoever renews them need not tell anybody. `flags` is who named them."""

    def __init__(self, cert_file: Path, key_file: Path, flags: str = "") -> None:
        self._files = cert_file, key_file
        self.name = f"{flags}: {cert_file} and {key_file}" if flags else f"{cert_file} and {key_file}"

    def read(self) -> KeyPair:
        """What is in the files now; raises OSError."""
        cert_file, key_file = self._files
        return KeyPair(cert_file.read_bytes(), key_file.read_bytes())


class SelfSigned:
    """A pair for `hosts`, signed by a throw-away authority, renewed a week before it expires.

    It is kept in memory, or as `name`.crt and `name`.key in `folder`, which `flags` named. The certificate file also
    holds the authority, so that a client can pin it. A working pair of other origin in the folder is shown as it is
    and never replaced.
    """

    def __init__(self, name: str, hosts: Sequence[str], folder: Path | None = None, flags: str = "") -> None:
        self.name = f"{flags}: the self-signed certificate in {folder}" if folder else "the self-signed certificate"
        self._common_name = name
        self._hosts = tuple(hosts)
        self._files = (folder / f"{name}.crt", folder / f"{name}.key") if folder else None
        self._pair: KeyPair | None = None

    def read(self) -> KeyPair:
        """The pair, made anew where need be; raises OSError when it cannot be written."""
        if self._files is not None:
            self._pair = _read(*self._files)
        if self._pair is None or not self._serves(self._pair):
            self._pair = self._make()
            if self._files is not None:
                self._pair.write(*self._files)
        return self._pair

    def _make(self) -> KeyPair:
        ca = make_ca(self._authority, days=365)
        leaf = issue(ca, self._common_name, hosts=self._hosts)
        return KeyPair(leaf.certificate + ca.certificate, leaf.key)

    def _serves(self, pair: KeyPair) -> bool:
        """Whether the pair fits together and, if it is our own, lasts a while and names every host."""
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, password=None)
            ours = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == self._authority
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, IndexError, UnsupportedAlgorithm, x509.ExtensionNotFound):
            return False
        form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
            return False
        lasts = certificate.not_valid_after_utc - _RENEW_BEFORE > utc_now()
        return not ours or (lasts and all(alternative_name(host) in names for host in self._hosts))

    @property
    def _authority(self) -> str:
        return f"{self._common_name}-ca"


def _read(cert_file: Path, key_file: Path) -> KeyPair | None:
    try:
        return KeyPair(cert_file.read_bytes(), key_file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
