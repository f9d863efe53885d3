"""The trusted CAs of client certificates by purpose; they may change while a server runs."""

import hashlib
import ssl
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from controller_manager.common.api.wire import Certificate
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.standard_library import verified_chain

CLIENTS = "clients"
"""CAs of clients that act as themselves."""
PROXIES = "proxies"
"""CAs of authenticating proxies, which name the user in headers."""
_ROOTS = 1000  # client certificates whose CA is remembered


class UnusableAuthorities(CannotStart, ValueError):
    """A CA file cannot be read; the message names the flag and the file."""


def read_authorities(path: Path, flag: str) -> bytes:
    """Return the certificates (PEM) of the file that `flag` names. Raises UnusableAuthorities."""
    from cryptography import x509

    try:
        bundle = path.read_bytes()
        if not bundle.strip():
            raise ValueError("it is empty")
        x509.load_pem_x509_certificates(bundle)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UnusableAuthorities(f"{flag}: {path} holds no certificates that can be read: {why}") from error
    return bundle


def digest(certificate: bytes) -> str:
    """Return the fingerprint of a certificate (DER): its SHA-256 in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


class Trust:
    """CA bundles by purpose; subscribers are called after every change."""

    def __init__(self) -> None:
        self._bundles: dict[str, bytes] = {}
        self._roots: dict[str, frozenset[str]] = {}
        self._listeners: list[Callable[[], None]] = []

    def set(self, purpose: str, bundle: bytes) -> None:
        """Trust only certificates of the CAs in `bundle` (PEM) for `purpose`.

        Raises ValueError for a bundle without certificates; an empty bundle removes the trust.
        """
        from cryptography import x509  # imported only if needed
        from cryptography.hazmat.primitives.serialization import Encoding

        roots = x509.load_pem_x509_certificates(bundle) if bundle else []
        bundle = b"".join(root.public_bytes(Encoding.PEM) for root in roots)  # without comments
        if self._bundles.get(purpose, b"") == bundle:
            return
        self._bundles[purpose] = bundle
        self._roots[purpose] = frozenset(digest(root.public_bytes(Encoding.DER)) for root in roots)
        for listener in self._listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    @property
    def authorities(self) -> bytes:
        """Return all CAs (PEM); empty if no client certificate is trusted."""
        return b"\n".join(bundle for bundle in self._bundles.values() if bundle)

    def bundle(self, purpose: str) -> bytes:
        """Return the CAs for `purpose` (PEM); empty if there are none."""
        return self._bundles.get(purpose, b"")

    def believes(self, purpose: str, certificate: Certificate) -> bool:
        """Return whether a certificate that TLS has verified is trusted for `purpose` and not expired."""
        return certificate.root in self._roots.get(purpose, ()) and wall_seconds() < certificate.expires


class Roots:
    """Finds the CA at the end of the verified chain of a client certificate.

    A resumed session has the certificate but no chain, so the CA of earlier handshakes is remembered.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def of(self, connection: ssl.SSLObject) -> str:
        """Return the fingerprint of that CA; empty if the certificate was not verified by this process."""
        chain = verified_chain(connection)
        leaf = digest(connection.getpeercert(binary_form=True) or b"")
        if not chain:
            return self._known.get(leaf, "")
        self._known[leaf] = digest(chain[-1])
        self._known.move_to_end(leaf)
        if len(self._known) > _ROOTS:
            self._known.popitem(last=False)
        return self._known[leaf]
