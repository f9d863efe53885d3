"""The pages with which others verify service account tokens themselves (OpenID Connect Discovery 1.0, RFC 7517)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from apiserver_stub.authn.keys import VerifyingKey
from controller_manager.api.wire import Response
from controller_manager.component.routes import Handler, fixed

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_HEADERS = {"cache-control": "public, max-age=3600"}


def discovery_pages(issuer: str, keys_url: str, keys: Sequence[VerifyingKey]) -> Mapping[str, Handler]:
    """Return the pages by path; none for an issuer that is no https URL, since nobody could find them."""
    if not issuer.startswith("https://"):
        return {}
    algorithms = sorted({key.algorithm for key in keys})
    document = {
        "issuer": issuer,
        "jwks_uri": keys_url,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    }
    configuration = _page("application/json", document)
    key_set = _page("application/jwk-set+json", {"keys": [_web_key(key) for key in keys]})
    return {CONFIGURATION: fixed(configuration), KEYS: fixed(key_set)}


def _page(media: str, document: Any) -> Response:
    return Response(200, {"content-type": media, **_HEADERS}, msgspec.json.encode(document))


def _web_key(key: VerifyingKey) -> dict[str, Any]:
    public = key.public
    text = RSAAlgorithm.to_jwk(public) if isinstance(public, RSAPublicKey) else ECAlgorithm.to_jwk(public)
    named = {"use": "sig", "kty": "", "kid": key.name, "alg": key.algorithm}
    return {**named, **{name: value for name, value in json.loads(text).items() if name != "key_ops"}}
