"""Keys of service account tokens: read or made, named by content; the pages that publish them (OpenID Connect)."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from controller_manager.api.wire import Request, Response
from controller_manager.base.files import write_atomically
from controller_manager.component.pages import Handler

# Keys of service account tokens: read from PEM files or made, named by their content, bound to one algorithm each.

_ALGORITHMS: Mapping[str, str] = MappingProxyType({"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"})
ALGORITHMS = frozenset({"RS256", *_ALGORITHMS.values()})
"""The algorithms that tokens are signed with (RFC 7518, section 3.1)."""
_SMALLEST_RSA = 2048
_KEPT = 3600  # seconds that others may keep keys which never change
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


class _Unusable(ValueError):
    """Raised for a key that tokens cannot be signed with; its text says why."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key; `name` (`kid`) is the hash of its DER form, so that all servers of a cluster call it the same."""

    name: str
    algorithm: str
    public: RSAPublicKey | EllipticCurvePublicKey

    @classmethod
    def of(cls, public: Any, name: str = "") -> "VerifyingKey":
        """Name a key, unless it has a `name`, and choose its algorithm. Raises `ValueError` for one that signs no
        tokens.
        """
        algorithm = _algorithm(public)
        if name:
            return cls(name, algorithm, public)
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        digest = hashlib.sha256(public.public_bytes(*form)).digest()
        return cls(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), algorithm, public)


class VerifyingKeys(Protocol):
    """The keys with which tokens are verified; those of an external signer change."""

    async def named(self, name: str) -> Sequence[VerifyingKey]:
        """Return the keys of that name (`kid`), all without a name. Raises nothing: who has no keys returns none."""

    def published(self) -> tuple[Sequence[VerifyingKey], int]:
        """Return the keys that others may verify tokens with, and for how many seconds they may keep these."""


class GivenKeys:
    """Keys that never change."""

    def __init__(self, keys: Iterable[VerifyingKey]) -> None:
        self._keys = {key.name: key for key in keys}

    async def named(self, name: str) -> Sequence[VerifyingKey]:
        """See `VerifyingKeys`."""
        if not name:
            return tuple(self._keys.values())
        key = self._keys.get(name)
        return (key,) if key else ()

    def published(self) -> tuple[Sequence[VerifyingKey], int]:
        """See `VerifyingKeys`."""
        return tuple(self._keys.values()), _KEPT


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, and its public half."""

    private: RSAPrivateKey | EllipticCurvePrivateKey = field(repr=False)
    verifying: VerifyingKey


def read_verifying_keys(file: Path, flag: str) -> list[VerifyingKey]:
    """Return the keys of a PEM file, which may hold several, public or private. Raises `ValueError` naming flag and
    file.
    """
    return [VerifyingKey.of(public) for public, _ in _read(file, flag)]


def read_signing_key(file: Path, flag: str) -> SigningKey:
    """Return the first private key of a PEM file. Raises `ValueError` naming flag and file."""
    for public, private in _read(file, flag):
        if private is not None:
            return SigningKey(private, VerifyingKey.of(public))
    raise ValueError(f"{flag}: {file} holds no private key")


def own_key(folder: Path | None) -> SigningKey:
    """Return a key of the server's own: `sa.key` of the folder, made there with `sa.pub` if need be; without a folder,
    one that nobody keeps. Raises `OSError` or `ValueError`.
    """
    if folder is None:
        private = generate_private_key(SECP256R1())
        return SigningKey(private, VerifyingKey.of(private.public_key()))
    file = folder / "sa.key"
    if not file.exists():
        _make(file, folder / "sa.pub")
    return read_signing_key(file, "--cert-dir")


def _make(file: Path, public_file: Path) -> None:
    made = generate_private_key(SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    write_atomically(public_file, made.public_key().public_bytes(serialization.Encoding.PEM, form))
    plain = serialization.NoEncryption()
    write_atomically(file, made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def _read(file: Path, flag: str) -> list[tuple[Any, Any]]:
    """Return the public and, where there is one, private keys of a file, each checked."""
    found = []
    try:
        for block in _BLOCK.finditer(file.read_bytes()):
            pair = _load(block[1], block[0])
            if pair is not None:
                _algorithm(pair[0])
                found.append(pair)
    except _Unusable as error:
        raise ValueError(f"{flag}: {file} holds {error}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):  # their texts may quote the file
        raise ValueError(f"{flag}: {file} holds a key that cannot be read; it may be damaged or encrypted") from None
    if not found:
        raise ValueError(f"{flag}: {file} holds no key in PEM form")
    return found


def _load(label: bytes, block: bytes) -> tuple[Any, Any] | None:
    if label.endswith(b"PRIVATE KEY"):
        private: Any = serialization.load_pem_private_key(block, None)
        return private.public_key(), private
    if label.endswith(b"PUBLIC KEY"):
        return serialization.load_pem_public_key(block), None
    if label == b"CERTIFICATE":
        return x509.load_pem_x509_certificate(block).public_key(), None
    return None  # parameters of a curve, for example


def _algorithm(public: Any) -> str:
    """Return the one algorithm a key is used with (RFC 7518, sections 3.3 and 3.4)."""
    if isinstance(public, RSAPublicKey):
        if public.key_size < _SMALLEST_RSA:
            raise _Unusable(f"an RSA key of {public.key_size} bits, and the least is {_SMALLEST_RSA}")
        return "RS256"
    if isinstance(public, EllipticCurvePublicKey) and public.curve.name in _ALGORITHMS:
        return _ALGORITHMS[public.curve.name]
    raise _Unusable("a key that is neither RSA nor ECDSA on P-256, P-384 or P-521")


# The pages with which others verify service account tokens themselves (OpenID Connect Discovery 1.0, RFC 7517).

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"


def discovery_pages(issuer: str, keys_url: str, keys: VerifyingKeys) -> Mapping[str, Handler]:
    """Return the pages by path; none for an issuer that is no https URL, since nobody could find them."""
    if not issuer.startswith("https://"):
        return {}

    async def configuration(_: Request) -> Response:
        known, seconds = keys.published()
        document = {
            "issuer": issuer,
            "jwks_uri": keys_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({key.algorithm for key in known}),
        }
        return _page("application/json", document, seconds)

    async def key_set(_: Request) -> Response:
        known, seconds = keys.published()
        return _page("application/jwk-set+json", {"keys": [_web_key(key) for key in known]}, seconds)

    return {CONFIGURATION: configuration, KEYS: key_set}


def _page(media: str, document: Any, seconds: int) -> Response:
    headers = {"content-type": media, "cache-control": f"public, max-age={seconds}"}
    return Response(200, headers, msgspec.json.encode(document))


def _web_key(key: VerifyingKey) -> dict[str, Any]:
    public = key.public
    text = RSAAlgorithm.to_jwk(public) if isinstance(public, RSAPublicKey) else ECAlgorithm.to_jwk(public)
    named = {"use": "sig", "kty": "", "kid": key.name, "alg": key.algorithm}
    return {**named, **{name: value for name, value in json.loads(text).items() if name != "key_ops"}}
