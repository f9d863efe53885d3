"""The keys that verify service account tokens, the key of this server, and the pages that publish the public keys
(OpenID Connect).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.files import write_atomically
from controller_manager.common.component.pages import Handler
from controller_manager.common.serving.token_keys import SigningKey, VerifyingKey, read_signing_key

_KEPT = 3600  # seconds that clients may cache static keys


class VerifyingKeys(Protocol):
    """The keys that verify tokens; those of an external signer change."""

    async def named(self, name: str) -> Sequence[VerifyingKey]:
        """Return the keys with that id (`kid`), or all without one. Never raises; returns no keys instead."""

    def published(self) -> tuple[Sequence[VerifyingKey], int]:
        """Return the public keys to publish, and the seconds that clients may cache them."""


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


def own_key(folder: Path | None) -> SigningKey:
    """Return the signing key of this server: `sa.key` in the folder, created with `sa.pub` if missing; without a
    folder, a temporary key. Raises `OSError` or `ValueError`.
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


# The pages for verifying service account tokens elsewhere (OpenID Connect Discovery 1.0, RFC 7517).

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"


def discovery_pages(issuer: str, keys_url: str, keys: VerifyingKeys) -> Mapping[str, Handler]:
    """Return the pages by path; none if the issuer is not an https URL, because discovery requires one."""
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
