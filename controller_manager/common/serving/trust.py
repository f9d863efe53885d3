"""The trusted authorities of client certificates, each for a purpose; they may change while a server serves."""

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
"""Authorities of callers who speak for themselves."""
PROXIES = "proxies"
"""Authorities of proxies, which say in headers for whom they speak."""
_ROOTS = 1000  # certificates of clients whose authority is remembered


class UnusableAuthorities(CannotStart, ValueError):
    """A file holds no authorities that can be read; the message names the flag and the file."""


def read_authorities(path: Path, flag: str) -> bytes:
    """Return the certificates (PEM) in the file that `flag` names. Raises UnusableAuthorities."""
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
    """Return how a certificate (DER) is known: its SHA-256 in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


class Trust:
    """Bundles of authorities by purpose; `changed` is called after every change."""

    def __init__(self) -> None:
        self._bundles: dict[str, bytes] = {}
        self._roots: dict[str, frozenset[str]] = {}
        self._listeners: list[Callable[[], None]] = []

    def set(self, purpose: str, bundle: bytes) -> None:
        """Believe certificates of the authorities in `bundle` (PEM) for `purpose` from now on, and no others.

        Raises ValueError for a bundle that holds no certificate; an empty one takes the trust away.
        """
        from cryptography import x509  # loaded only by who trusts somebody
        from cryptography.hazmat.primitives.serialization import Encoding

        roots = x509.load_pem_x509_certificates(bundle) if bundle else []
        bundle = b"".join(root.public_bytes(Encoding.PEM) for root in roots)  # without what people write between
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
        """All authorities, PEM; empty if no client certificate is believed."""
        return b"\n".join(bundle for bundle in self._bundles.values() if bundle)

    def bundle(self, purpose: str) -> bytes:
        """Return the authorities for `purpose`, PEM; empty if there are none."""
        return self._bundles.get(purpose, b"")

    def believes(self, purpose: str, certificate: Certificate) -> bool:
        """Return whether a certificate that TLS has verified is good for `purpose` now."""
        return certificate.root in self._roots.get(purpose, ()) and wall_seconds() < certificate.expires


class Roots:
    """Finds the authority that the verified chain of a client's certificate ends in.

    A resumed session carries the certificate but no chain, so that of earlier handshakes is remembered.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def of(self, connection: ssl.SSLObject) -> str:
        """The digest of that authority; empty when it was not verified here."""
        chain = verified_chain(connection)
        leaf = digest(connection.getpeercert(binary_form=True) or b"")
        if not chain:
            return self._known.get(leaf, "")
        self._known[leaf] = digest(chain[-1])
        self._known.move_to_end(leaf)
        if len(self._known) > _ROOTS:
            self._known.popitem(last=False)
        return self._known[leaf]
