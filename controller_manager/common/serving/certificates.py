"""The serving certificates: their sources, selection by server name (SNI), and reloading."""

import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.tls import (
    DEFAULT_POLICY,
    KeyPair,
    TLSPolicy,
    alternative_name,
    context_of,
    issue,
    make_ca,
)

_DOMAIN = re.compile(r"\*|(\*\.)?([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOMAIN_LENGTH = 253
_LOOK_EVERY = 5.0  # seconds between two checks of the sources
_MOST_WORDS = 200  # characters of an error text
_RENEW_BEFORE = timedelta(days=7)


def name_table(wanted: Sequence[Sequence[str]], shown: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the number of the certificate for each name.

    `wanted` are the patterns configured for each certificate, `shown` the names in it, which are used if no patterns
    are configured. Patterns take precedence over names in certificates, and earlier certificates over later ones.
    """
    table: dict[str, int] = {}
    for patterns in (wanted, [() if given else names for given, names in zip(wanted, shown, strict=True)]):
        for number, names in enumerate(patterns):
            for name in names:
                table.setdefault(_canonical(name), number)
    return table


def by_name(table: Mapping[str, int], server_name: str) -> int | None:
    """Return the certificate for a server name: exact names first, then the longest wildcard."""
    name = _canonical(server_name)
    if name in table:
        return table[name]
    labels = name.split(".")
    for place in range(len(labels)):
        labels[place] = "*"
        if (found := table.get(".".join(labels))) is not None:
            return found
    return None


def by_address(table: Mapping[str, int], address: str) -> int | None:
    """Return the certificate for a local address, for clients that sent no server name."""
    return table.get(_canonical(address))


def names_of(certificate: bytes) -> list[str]:
    """Return the domains of the first certificate of a chain (PEM). IP addresses are ignored, since clients cannot send
    them as server name. Raises ValueError.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        alternative = _alternative_names(found)
    except (x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise ValueError(f"not a valid certificate: {error}") from error
    common = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)][-1:]
    names = [name for name in common if not _is_address(name) and _is_domain(name)]
    return names + alternative


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _canonical(name: str) -> str:
    """Return a name in lower case without trailing dot, or a normalized IP address (mapped IPv4 as IPv4)."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_domain(name: str) -> bool:
    return len(name) <= _DOMAIN_LENGTH and _DOMAIN.fullmatch(name) is not None


class PairSource(Protocol):
    """A source of a key pair that may change."""

    @property
    def name(self) -> str:
        """The source as part of a sentence."""

    def read(self) -> KeyPair:
        """Return the current pair. Raises OSError or ValueError."""


class FilePair:
    """Two PEM files, read each time so that they can be replaced. `flags` names the flags for error messages."""

    def __init__(self, cert_file: Path, key_file: Path, flags: str = "") -> None:
        self._files = cert_file, key_file
        self.name = f"{flags}: {cert_file} and {key_file}" if flags else f"{cert_file} and {key_file}"

    def read(self) -> KeyPair:
        """Return the current content of the files. Raises OSError."""
        cert_file, key_file = self._files
        return KeyPair(cert_file.read_bytes(), key_file.read_bytes())


class SelfSigned:
    """A certificate for `hosts`, signed by a temporary CA and renewed a week before it expires.

    It is kept in memory, or as `name`.crt and `name`.key in `folder`, which `flags` configured. The certificate file
    also holds the CA certificate, so that clients can verify it. A valid pair from another source in the folder is used
    and never replaced.
    """

    def __init__(self, name: str, hosts: Sequence[str], folder: Path | None = None, flags: str = "") -> None:
        self.name = f"{flags}: the self-signed certificate in {folder}" if folder else "the self-signed certificate"
        self._common_name = name
        self._hosts = tuple(hosts)
        self._files = (folder / f"{name}.crt", folder / f"{name}.key") if folder else None
        self._pair: KeyPair | None = None

    def read(self) -> KeyPair:
        """Return the pair; create it if it is missing or expires soon. Raises OSError if it cannot be written."""
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
        """Return whether the pair matches and, if it is our own, does not expire soon and contains every host."""
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
        valid = certificate.not_valid_before_utc <= utc_now() < certificate.not_valid_after_utc - _RENEW_BEFORE
        return not ours or (valid and all(alternative_name(host) in names for host in self._hosts))

    @property
    def _authority(self) -> str:
        return f"{self._common_name}-ca"


def _read(cert_file: Path, key_file: Path) -> KeyPair | None:
    try:
        return KeyPair(cert_file.read_bytes(), key_file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


class Named(msgspec.Struct, frozen=True):
    """A key pair for certain server names: those of `patterns`, or those in the certificate."""

    source: PairSource
    patterns: Sequence[str] = ()


class UnusablePair(CannotStart):
    """A key pair is unusable; the message names its source but not its content."""


class _ContextsByName:
    """TLS contexts that differ only in their certificates; the first one is the default."""

    def __init__(self, contexts: Sequence[ssl.SSLContext], table: dict[str, int]) -> None:
        self._default, *self._named = contexts
        self._table = table
        if table:
            for context in contexts:
                context.sni_callback = self._change

    def for_address(self, address: str) -> ssl.SSLContext:
        number = by_address(self._table, address) if self._table else None
        return self._default if number is None else self._named[number]

    def _change(self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
        if server_name is not None:
            number = by_name(self._table, server_name)
            connection.context = self._default if number is None else self._named[number]


class Contexts:
    """Returns the TLS context for each new connection, by local address.

    The sources are checked on a new connection if the last check was more than a few seconds ago; there is no
    background task. A broken or half-written pair is logged once, and the previous pair stays in use. `authorities`
    returns the CA certificates of clients (PEM); call `renew` when they change. Existing connections keep their
    context. Raises UnusablePair if a pair is unusable at the start, ValueError if the CA certificates are.
    """

    def __init__(
        self,
        default: PairSource,
        named: Sequence[Named] = (),
        authorities: Callable[[], bytes] = bytes,
        policy: TLSPolicy = DEFAULT_POLICY,
    ) -> None:
        self._sources = (default, *(one.source for one in named))
        self._patterns = [one.patterns for one in named]
        self._authorities = authorities
        self._policy = policy
        self._log = get_logger("serving")
        self._problems: dict[int, str] = {}
        self._pairs = [_first(source) for source in self._sources]
        self._looked = monotonic()
        self._contexts: _ContextsByName | None = self._make_contexts()

    def __call__(self, address: str) -> ssl.SSLContext:
        """Return the context for a connection to the local `address`."""
        now = monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._look()
        if self._contexts is None:
            self._contexts = self._make_contexts()
        return self._contexts.for_address(address)

    def renew(self) -> None:
        """Use the changed CA certificates for new connections."""
        self._contexts = None

    def _make_contexts(self) -> _ContextsByName:
        authorities = self._authorities()
        contexts = [context_of(pair, authorities, self._policy) for pair in self._pairs]
        shown = [names_of(pair.certificate) for pair in self._pairs[1:]]
        return _ContextsByName(contexts, name_table(self._patterns, shown))

    def _look(self) -> None:
        for number, source in enumerate(self._sources):
            try:
                pair = source.read()
                if pair != self._pairs[number]:
                    _check(pair)
            except (OSError, ValueError) as error:
                self._complain(number, _why(error))
                continue
            self._problems.pop(number, None)
            if pair != self._pairs[number]:
                self._pairs[number] = pair
                self._contexts = None
                self._log.info("using new certificate", source=source.name)

    def _complain(self, number: int, problem: str) -> None:
        if self._problems.get(number) != problem:
            self._problems[number] = problem
            source = self._sources[number].name
            self._log.error("failed to load certificate; keeping the previous one", source=source, problem=problem)


def _first(source: PairSource) -> KeyPair:
    try:
        pair = source.read()
        _check(pair)
    except (OSError, ValueError) as error:
        raise UnusablePair(f"{source.name} cannot be served: {_why(error)}") from error
    return pair


def _why(error: OSError | ValueError) -> str:
    """Return an error as text; for `ssl` only the reason, since the rest refers to OpenSSL code."""
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "they are no pair in PEM"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {(error.strerror or '').lower()}"
    return str(error)[:_MOST_WORDS]


def _check(pair: KeyPair) -> None:
    """Raise OSError or ValueError if the pair is unusable."""
    context_of(pair)
    names_of(pair.certificate)
