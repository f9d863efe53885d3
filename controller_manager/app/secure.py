"""The listening site of the manager, as its flags describe it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self

from pydantic import field_validator, model_validator

from controller_manager.api.wire import Request, Response
from controller_manager.base.log import get_logger
from controller_manager.client import ConfigError
from controller_manager.options import Options, StringList, flag
from controller_manager.options.types import FlagType
from controller_manager.serving import suites
from controller_manager.serving.listening import ALL_INTERFACES
from controller_manager.serving.trust import Trust

if TYPE_CHECKING:
    from controller_manager.serving import HTTPServer
    from controller_manager.serving.contexts import Contexts
    from controller_manager.serving.pairs import PairSource
    from controller_manager.serving.tls import Policy

# Pages are for readers, who send no bodies; anybody may send the head of a request, before it is known who that is.
_HEAD, _BODY, _CONNECTIONS = 128 * 1024, 64 * 1024, 1000
_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_USUAL_VERSION = "VersionTLS12"
_FILE_FLAGS = "--tls-cert-file and --tls-private-key-file"


class SniPair(NamedTuple):
    """A value of --tls-sni-cert-key: two files, and the names that the pair is for if not those of the certificate."""

    cert_file: str
    key_file: str
    patterns: tuple[str, ...] = ()


def _parse_sni(text: str) -> tuple[SniPair]:
    files, colon, patterns = text.partition(":")
    paths = [path.strip() for path in files.split(",")]
    names = tuple(name.strip() for name in patterns.split(",")) if colon else ()
    if len(paths) != 2 or not all(paths) or not all(names):
        raise ValueError("must be a certificate file, a comma and a key file, then maybe a colon and domain patterns")
    return (SniPair(paths[0], paths[1], names),)


def _format_sni(pairs: tuple[SniPair, ...]) -> str:
    colon = {True: ":", False: ""}
    return ";".join(
        f"{one.cert_file},{one.key_file}{colon[bool(one.patterns)]}{','.join(one.patterns)}" for one in pairs
    )


SniPairs = Annotated[
    tuple[SniPair, ...], FlagType("string", _parse_sni, _format_sni, lambda before, more: before + more)
]


class ServingOptions(Options):
    """Where health, metrics and the like are served."""

    title: ClassVar[str] = "Secure serving"

    bind_address: str = flag(
        "0.0.0.0",  # noqa: S104
        "address to listen on; empty, 0.0.0.0 and :: are all interfaces, IPv4 and IPv6",
    )
    secure_port: int | None = flag(
        10257,
        "port to serve HTTPS on; 0 serves nothing, and without a default it is any that is free",
        minimum=0,
        maximum=65535,
    )
    permit_address_sharing: bool = flag(
        False,
        "accepted for existing manifests and changes nothing: SO_REUSEADDR is always set, so that connections that "
        "linger after an earlier process are no obstacle",
    )
    permit_port_sharing: bool = flag(False, "bind with SO_REUSEPORT: several processes may listen on the same port")
    cert_dir: str = flag(
        "",
        "folder in which the self-signed certificate is kept; without it, it lasts as long as the process; not used "
        "with --tls-cert-file",
    )
    tls_cert_file: str = flag(
        "", "file of the certificate to show, followed by those that signed it; read again when it changes"
    )
    tls_private_key_file: str = flag("", "file of the private key of --tls-cert-file")
    tls_sni_cert_key: SniPairs = flag(
        (),
        "certificate and key file for clients that ask for certain names, and after a colon these names: "
        "cert,key or cert,key:*.example.com,example.com. Without names those of the certificate count. A name beats a "
        "wildcard, a name given here one of a certificate. Repeatable",
    )
    tls_min_version: str = flag(
        "",
        f"oldest version of TLS to accept: {', '.join(_VERSIONS)}; {_USUAL_VERSION} if empty. Versions before that are "
        "insecure (RFC 8996), and a warning is logged",
    )
    tls_cipher_suites: StringList = flag(
        (),
        "cipher suites of TLS 1.2; by default the preferred ones of OpenSSL. Those of TLS 1.3 are always all on offer, "
        f"and naming only these rules TLS 1.2 out. Known: {', '.join((*suites.TLS_1_3, *suites.SECURE))}. Insecure: "
        f"{', '.join(suites.INSECURE)}",
    )
    http2_max_streams_per_connection: int = flag(
        0,
        "streams a client may have in one HTTP/2 connection; this server speaks HTTP/1.1 only and logs that a number "
        "has no effect, unless --disable-http2-serving",
        minimum=0,
    )
    disable_http2_serving: bool = flag(
        False,
        "do not serve HTTP/2; it never is, and this flag says that you know: no warning is logged for "
        "--http2-max-streams-per-connection",
    )

    @field_validator("bind_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value

    @field_validator("tls_min_version")
    @classmethod
    def _is_version(cls, value: str) -> str:
        if value and value not in _VERSIONS:
            *others, last = _VERSIONS
            raise ValueError(f"must be {', '.join(others)} or {last}")
        return value

    @field_validator("tls_cipher_suites")
    @classmethod
    def _are_suites(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in suites.KNOWN]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is no cipher suite: known are {', '.join(suites.KNOWN)}")
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError(f"{_FILE_FLAGS} must be given together")
        return self


def secure_site(
    handle: Callable[[Request], Awaitable[Response]], serving: ServingOptions, trust: Trust, name: str
) -> HTTPServer | None:
    """The site of the program `name`, or None with --secure-port=0; raises ConfigError naming the flags whose files
    cannot be used.
    """
    if serving.secure_port == 0:
        return None
    from controller_manager.serving.http_server import HTTPServer, Limits  # --help does without its HTTP library

    if serving.http2_max_streams_per_connection and not serving.disable_http2_serving:
        get_logger("serving").warning(
            "--http2-max-streams-per-connection has no effect: this server speaks HTTP/1.1 only"
        )
    return HTTPServer(
        handle,
        serving.bind_address,
        serving.secure_port or 0,
        _contexts(serving, trust, name),
        limits=Limits(_HEAD, _BODY, _CONNECTIONS),
        share_port=serving.permit_port_sharing,
    )


def _contexts(serving: ServingOptions, trust: Trust, name: str) -> Contexts:
    from controller_manager.serving.contexts import Contexts, Named, UnusablePair
    from controller_manager.serving.pairs import FilePair

    named = [
        Named(FilePair(Path(one.cert_file), Path(one.key_file), "--tls-sni-cert-key"), one.patterns)
        for one in serving.tls_sni_cert_key
    ]
    try:
        contexts = Contexts(_default_pair(serving, name), named, lambda: trust.authorities, _policy(serving))
    except UnusablePair as error:
        raise ConfigError(str(error)) from error
    trust.subscribe(contexts.renew)
    return contexts


def _default_pair(serving: ServingOptions, name: str) -> PairSource:
    from controller_manager.serving.pairs import FilePair, SelfSigned

    if serving.tls_cert_file:
        return FilePair(Path(serving.tls_cert_file), Path(serving.tls_private_key_file), _FILE_FLAGS)
    folder = Path(serving.cert_dir) if serving.cert_dir else None
    return SelfSigned(name, _hosts(serving.bind_address), folder, "--cert-dir")


def _policy(serving: ServingOptions) -> Policy:
    from controller_manager.serving.tls import Policy, available_ciphers

    minimum, log = _VERSIONS[serving.tls_min_version or _USUAL_VERSION], get_logger("serving")
    if minimum < _VERSIONS[_USUAL_VERSION]:
        log.warning("--tls-min-version allows insecure versions of TLS", oldest=serving.tls_min_version)
    if not serving.tls_cipher_suites:
        return Policy(minimum)
    choice = suites.choose(serving.tls_cipher_suites, available_ciphers())
    if choice.insecure:
        log.warning("--tls-cipher-suites has insecure ones", suites=choice.insecure)
    if choice.missing:
        log.warning("--tls-cipher-suites has some that this OpenSSL has not", suites=choice.missing)
    return Policy(minimum if choice.ciphers else ssl.TLSVersion.TLSv1_3, choice.ciphers)


def _hosts(bind_address: str) -> list[str]:
    own = [] if bind_address in ALL_INTERFACES else [bind_address.partition("%")[0]]  # no certificate has a zone
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *own]))
