"""HTTPS flags: address, certificates, TLS versions and cipher suites; used by `secure_server`."""

import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec
from pydantic import field_validator, model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import FlagType, StringList

TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""The TLS 1.3 cipher suites, which are always enabled."""

SECURE_SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
INSECURE_SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
"""Accepted with a warning; most builds of OpenSSL no longer have RC4 and 3DES."""

KNOWN_SUITES = (*TLS_1_3, *SECURE_SUITES, *INSECURE_SUITES)


class CipherSuites(msgspec.Struct, frozen=True):
    """The cipher suites selected by name: OpenSSL's list for TLS 1.2 (empty: TLS 1.3 only), the insecure names, and the
    names that this OpenSSL does not support.
    """

    ciphers: str
    insecure: tuple[str, ...]
    missing: tuple[str, ...]


def choose_suites(names: Sequence[str], available: frozenset[str]) -> CipherSuites:
    """Select suites by their names; `available` are the suites of this OpenSSL, with OpenSSL's names."""
    classic = {name: SECURE_SUITES.get(name) or INSECURE_SUITES[name] for name in names if name not in TLS_1_3}
    missing = tuple(name for name, cipher in classic.items() if cipher not in available)
    ciphers = dict.fromkeys(cipher for name, cipher in classic.items() if name not in missing)
    return CipherSuites(":".join(ciphers), tuple(name for name in names if name in INSECURE_SUITES), missing)


VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
USUAL_VERSION = "VersionTLS12"
FILE_FLAGS = "--tls-cert-file and --tls-private-key-file"


class SniPair(NamedTuple):
    """A value of --tls-sni-cert-key: two files, and the domain patterns, by default those of the certificate."""

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


class SecureServingOptions(Options):
    """HTTPS flags. A component extends this class with its own defaults."""

    title: ClassVar[str] = "Secure serving"

    bind_address: str = flag(
        "0.0.0.0",  # noqa: S104
        "address to listen on; empty, 0.0.0.0 and :: are all interfaces, IPv4 and IPv6",
    )
    secure_port: int | None = flag(
        None,
        "port to serve HTTPS on; 0 serves nothing, and without a default it is any that is free",
        minimum=0,
        maximum=65535,
    )
    permit_address_sharing: bool = flag(
        False,
        "accepted for existing manifests, without effect: SO_REUSEADDR is always set, so that old connections of an "
        "earlier process do not block the address",
    )
    permit_port_sharing: bool = flag(False, "bind with SO_REUSEPORT: several processes may listen on the same port")
    cert_dir: str = flag(
        "",
        "folder for the self-signed certificate; without it, the certificate is kept in memory; not used with "
        "--tls-cert-file",
    )
    tls_cert_file: str = flag(
        "", "file with the serving certificate, followed by intermediate certificates; reloaded when it changes"
    )
    tls_private_key_file: str = flag("", "file with the private key for --tls-cert-file")
    tls_sni_cert_key: SniPairs = flag(
        (),
        "certificate and key file for certain server names (SNI), optionally followed by a colon and domain patterns: "
        "cert,key or cert,key:*.example.com,example.com. Without patterns, the names in the certificate are used. "
        "Exact names take precedence over wildcards, and patterns over names in certificates. Repeatable",
    )
    tls_min_version: str = flag(
        "",
        f"oldest version of TLS to accept: {', '.join(VERSIONS)}; {USUAL_VERSION} if empty. Versions before that are "
        "insecure (RFC 8996), and a warning is logged",
    )
    tls_cipher_suites: StringList = flag(
        (),
        "cipher suites of TLS 1.2; by default those of ECDHE with AES-GCM or ChaCha20-Poly1305. Those of TLS 1.3 are "
        "always enabled; if only these are given, TLS 1.2 is disabled. "
        f"Known: {', '.join((*TLS_1_3, *SECURE_SUITES))}. Insecure: "
        f"{', '.join(INSECURE_SUITES)}",
    )
    http2_max_streams_per_connection: int = flag(
        0,
        "maximum number of streams per HTTP/2 connection; without effect, since this server supports HTTP/1.1 only; a "
        "warning is logged unless --disable-http2-serving",
        minimum=0,
    )
    disable_http2_serving: bool = flag(
        False,
        "do not serve HTTP/2; it is never served, and this flag only disables the warning for "
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
        if value and value not in VERSIONS:
            *others, last = VERSIONS
            raise ValueError(f"must be {', '.join(others)} or {last}")
        return value

    @field_validator("tls_cipher_suites")
    @classmethod
    def _are_suites(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in KNOWN_SUITES]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is no cipher suite: known are {', '.join(KNOWN_SUITES)}")
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError(f"{FILE_FLAGS} must be given together")
        return self
