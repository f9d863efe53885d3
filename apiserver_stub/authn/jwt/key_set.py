"""Public keys as issuers publish them (RFC 7517), and the signatures that they verify (RFC 7518, section 3; of Ed25519:
RFC 8037, section 3.1).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm, RSAPSSAlgorithm

from apiserver_stub.authn.jwt.compact import Header, UnverifiedToken, decode_part

EDWARDS = "EdDSA"
MOST_KEYS = 64
_RSA_BITS = range(2048, 8193)
_HASHES = (("256", RSAAlgorithm.SHA256), ("384", RSAAlgorithm.SHA384), ("512", RSAAlgorithm.SHA512))

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        **{f"RS{bits}": RSAAlgorithm(hashing) for bits, hashing in _HASHES},
        **{f"ES{bits}": ECAlgorithm(hashing) for bits, hashing in _HASHES},
        **{f"PS{bits}": RSAPSSAlgorithm(hashing) for bits, hashing in _HASHES},
        EDWARDS: OKPAlgorithm(),
    }
)
"""The algorithms that need no secret of the issuer, by name."""
_OF_RSA = frozenset(name for name in ALGORITHMS if name[0] in "RP")
_OF_CURVE: Mapping[str, str] = MappingProxyType({"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"})
_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
_SECRET = frozenset({"d", "p", "q", "k"})


class UnusableKeys(ValueError):
    """A document is not a valid key set; the message is the reason."""


PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class VerificationKey(NamedTuple):
    """A public key with its name, and the algorithms it is for."""

    name: str
    algorithms: frozenset[str]
    public: PublicKey


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


_KEY_SET = msgspec.json.Decoder(_KeySet)


def parse_keys(document: bytes) -> tuple[VerificationKey, ...]:
    """Return the usable verification keys of a set, at most 64; others are ignored as the standard requires (section
    5). Raises `UnusableKeys`.
    """
    try:
        described = _KEY_SET.decode(document).keys
    except (ValueError, RecursionError) as error:
        raise UnusableKeys(f"not a JSON Web Key Set: {error}") from None
    return tuple(key for one in described[:MOST_KEYS] if (key := _key(one)) is not None)


def _key(described: Mapping[str, Any]) -> VerificationKey | None:
    """Return a key; None for another use, for less than 2048 bits, or if private parts are included, because then every
    reader could sign.
    """
    if described.get("use", "sig") != "sig" or _SECRET & described.keys():
        return None
    name = described.get("kid") or ""
    public = {member: described[member] for member in _PUBLIC if member in described}
    try:
        found, algorithms = _public_key(public)
        only = described.get("alg")
        return VerificationKey(str(name), algorithms & {only} if only else algorithms, found)
    except (jwt.InvalidKeyError, ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm):
        return None


def _public_key(public: dict[str, Any]) -> tuple[PublicKey, frozenset[str]]:
    """Return a key and its algorithms. Raises `ValueError` and errors of the library for an invalid key."""
    found: object = None
    if public["kty"] == "RSA":
        found = RSAAlgorithm.from_jwk(public)
        if isinstance(found, RSAPublicKey) and found.key_size in _RSA_BITS:
            return found, _OF_RSA
    elif public["kty"] == "EC":
        found = ECAlgorithm.from_jwk(public)
        if isinstance(found, EllipticCurvePublicKey):
            return found, frozenset({_OF_CURVE[public["crv"]]})
    elif public["kty"] == "OKP":
        found = OKPAlgorithm.from_jwk(public)
        if isinstance(found, Ed25519PublicKey):
            return found, frozenset({EDWARDS})
    raise ValueError("not a signing key")


def is_signed(token: UnverifiedToken, header: Header, keys: Sequence[VerificationKey]) -> bool:
    """Return whether one of the keys signed a token; if the token names a key, only that key."""
    try:
        signature = decode_part(token.signature)
    except ValueError:
        return False
    algorithm = ALGORITHMS[header.algorithm]
    return any(
        algorithm.verify(token.signed, key.public, signature)
        for key in keys
        if header.algorithm in key.algorithms and header.key in ("", key.name)
    )
