"""Keys that sign and verify service account tokens: read from PEM files, named by their content, with one algorithm
each.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jwt
import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

_ALGORITHMS: Mapping[str, str] = MappingProxyType({"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"})
ALGORITHMS = frozenset({"RS256", *_ALGORITHMS.values()})
"""The signing algorithms of tokens (RFC 7518, section 3.1)."""
_SMALLEST_RSA = 2048
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


class _Unusable(ValueError):
    """Raised for a key that cannot sign tokens; the text says why."""


class VerifyingKey(msgspec.Struct, frozen=True):
    """A public key; `name` (`kid`) is the hash of its DER form, so that it is the same on all servers of a cluster."""

    name: str
    algorithm: str
    public: RSAPublicKey | EllipticCurvePublicKey

    @classmethod
    def of(cls, public: Any, name: str = "") -> "VerifyingKey":
        """Return a verifying key with its algorithm; without `name` it is named by its hash. Raises `ValueError` for a
        key that cannot sign tokens.
        """
        algorithm = _algorithm(public)
        if name:
            return cls(name, algorithm, public)
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        digest = hashlib.sha256(public.public_bytes(*form)).digest()
        return cls(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), algorithm, public)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and its public key."""

    private: RSAPrivateKey | EllipticCurvePrivateKey = field(repr=False)
    verifying: VerifyingKey

    def sign(self, claims: bytes) -> str:
        """Return a token with these claims (JSON)."""
        headers = {"kid": self.verifying.name, "typ": ""}
        return jwt.PyJWS().encode(claims, self.private, self.verifying.algorithm, headers)


def read_verifying_keys(file: Path, flag: str) -> list[VerifyingKey]:
    """Return all keys of a PEM file, public or private. Raises `ValueError` naming the flag and the
    file.
    """
    return [VerifyingKey.of(public) for public, _ in _read(file, flag)]


def read_signing_key(file: Path, flag: str) -> SigningKey:
    """Return the first private key of a PEM file. Raises `ValueError` naming the flag and the file."""
    for public, private in _read(file, flag):
        if private is not None:
            return SigningKey(private, VerifyingKey.of(public))
    raise ValueError(f"{flag}: {file} holds no private key")


def _read(file: Path, flag: str) -> list[tuple[Any, Any]]:
    """Return pairs of public and private keys (None for a public key) of a file, each checked."""
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
    """Return the only algorithm that a key is used with (RFC 7518, sections 3.3 and 3.4)."""
    if isinstance(public, RSAPublicKey):
        if public.key_size < _SMALLEST_RSA:
            raise _Unusable(f"an RSA key of {public.key_size} bits, and the least is {_SMALLEST_RSA}")
        return "RS256"
    if isinstance(public, EllipticCurvePublicKey) and public.curve.name in _ALGORITHMS:
        return _ALGORITHMS[public.curve.name]
    raise _Unusable("a key that is neither RSA nor ECDSA on P-256, P-384 or P-521")
