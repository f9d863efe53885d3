"""The certificates that a server shows: where they come from, which one for which name, and changes of them."""

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
_LOOK_EVERY = 5.0  # seconds between two looks at the sources
_MOST_WORDS = 200  # characters of a refusal
_RENEW_BEFORE = timedelta(days=7)


def name_table(wanted: Sequence[Sequence[str]], shown: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the certificate, by number, of each name.

    `wanted` are the patterns given for each certificate and `shown` its own names, which count where it was given
    none. A pattern beats a name of a certificate, and an earlier certificate a later one.
    """
    table: dict[str, int] = {}
    for patterns in (wanted, [() if given else names for given, names in zip(wanted, shown, strict=True)]):
        for number, names in enumerate(patterns):
            for name in names:
                table.setdefault(_canonical(name), number)
    return table


def by_name(table: Mapping[str, int], server_name: str) -> int | None:
    """Return the certificate for a server name: a name itself beats a wildcard, the longer one first."""
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
    """Return the certificate for the address a client that named no server has connected to."""
    return table.get(_canonical(address))


def names_of(certificate: bytes) -> list[str]:
    """Return the domains of the first certificate of a chain (PEM). Its addresses do not count: no
    client may send one as a server name. Raises ValueError.
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
    """Lower case without a last dot; an address in its one form, IPv4 within IPv6 as IPv4."""
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
    """A pair that may change while it is served."""

    @property
    def name(self) -> str:
        """The source in a sentence."""

    def read(self) -> KeyPair:
        """Return the pair to show now. Raises OSError or ValueError."""


class FilePair:
    """Two files (PEM), read each time: whoever renews them need not tell anybody. `flags` is who named them."""

    def __init__(self, cert_file: Path, key_file: Path, flags: str = "") -> None:
        self._files = cert_file, key_file
        self.name = f"{flags}: {cert_file} and {key_file}" if flags else f"{cert_file} and {key_file}"

    def read(self) -> KeyPair:
        """Return what is in the files now. Raises OSError."""
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
        """Return the pair, made anew where need be. Raises OSError when it cannot be written."""
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
        """Return whether the pair fits together and, if it is our own, is valid, lasts a while and names every host."""
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
    """A pair for clients that ask for certain names: those of the patterns, or those of the certificate."""

    source: PairSource
    patterns: Sequence[str] = ()


class UnusablePair(CannotStart):
    """A pair cannot be served; the message names its source and nothing of its content."""


class _ContextsByName:
    """Contexts alike but for their certificates; the first is for whoever asked for no other."""

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
    """The TLS context of each new connection; a call names the local address it came to.

    Sources are looked at again when a connection comes and the last look was some seconds ago, so nothing runs while
    nobody asks. A pair that is broken or half written changes nothing: the one before is shown on, and the log says
    so once. `authorities` gives those of clients (PEM); `renew` is to be called when they change. A connection keeps
    the context it began with. Raises UnusablePair if a pair is of no use from the start, ValueError if authorities are.
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
        """Have new connections see changed authorities."""
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
                self._log.info("a new certificate is shown from now on", source=source.name)

    def _complain(self, number: int, problem: str) -> None:
        if self._problems.get(number) != problem:
            self._problems[number] = problem
            source = self._sources[number].name
            self._log.error("a certificate cannot be used; the one before it stays", source=source, problem=problem)


def _first(source: PairSource) -> KeyPair:
    try:
        pair = source.read()
        _check(pair)
    except (OSError, ValueError) as error:
        raise UnusablePair(f"{source.name} cannot be served: {_why(error)}") from error
    return pair


def _why(error: OSError | ValueError) -> str:
    """Return the refusal in words; of `ssl` its reason only, since the rest is about its own code."""
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "they are no pair in PEM"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {(error.strerror or '').lower()}"
    return str(error)[:_MOST_WORDS]


def _check(pair: KeyPair) -> None:
    """Raise OSError or ValueError unless the pair can be shown."""
    context_of(pair)
    names_of(pair.certificate)
