"""A token issuer in memory instead of the network, with changing keys and faulty documents."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from apiserver_stub.authn.jwt.fetcher import FetchError
from controller_manager.common.api.wire import Response
from controller_manager.common.base.clock import wall_seconds

URL = "https://issuer.example"
DISCOVERY = f"{URL}/.well-known/openid-configuration"
KEYS = f"{URL}/keys"
RSA_KEYS = [rsa.generate_private_key(65537, 2048) for _ in range(2)]
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
EC_KEYS = {name: ec.generate_private_key(curve) for name, curve in CURVES.items()}


def jwk(private: Any, kid: str, **members: Any) -> dict[str, Any]:
    """The public half of a key in the form that issuers publish."""
    algorithm: Any = RSAAlgorithm if isinstance(private, rsa.RSAPrivateKey) else ECAlgorithm
    if isinstance(private, ed25519.Ed25519PrivateKey):
        algorithm = OKPAlgorithm
    return {**algorithm.to_jwk(private.public_key(), as_dict=True), "kid": kid, **members}


def b64(data: bytes | str) -> str:
    data = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Issuer:
    """Publishes `keys` by name, or the responses in `answers` instead; records the requests."""

    keys: dict[str, Any] = field(default_factory=lambda: {"one": RSA_KEYS[0]})
    answers: dict[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def claims(self, **more: Any) -> dict[str, Any]:
        """Claims of a valid user; `None` removes one."""
        now = int(wall_seconds())
        claims = {"iss": URL, "aud": "cluster", "sub": "jane", "iat": now, "exp": now + 3600, **more}
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, key: Any = None, algorithm: str = "RS256", kid: str | None = "one", header: Any = None, **more: Any
    ) -> str:
        """A token, signed with the first key unless another is given."""
        headers = {"alg": algorithm, **({"kid": kid} if kid is not None else {}), **(header or {})}
        signing = key if key is not None else next(iter(self.keys.values()))
        text = f"{b64(json.dumps(headers))}.{b64(json.dumps(self.claims(**more)))}"
        return f"{text}.{b64(get_default_algorithms()[algorithm].sign(text.encode(), signing))}"

    def count(self, url: str) -> int:
        """The number of requests for a document."""
        return [one for one, _ in self.asked].count(url)

    async def get(self, url: str, token: str = "") -> Response:
        """Replaces `Fetcher.get`."""
        self.asked.append((url, token))
        answer = self.answers.get(url, self._usual(url))
        if isinstance(answer, Callable):
            answer = answer()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, FetchError):
            raise answer
        return Response(200, self.headers, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def apart(self) -> "Issuer":
        """Replaces `Fetcher.apart`."""
        return self

    def close(self) -> None:
        """Replaces `Fetcher.close`."""

    def _usual(self, url: str) -> Any:
        if url == DISCOVERY:
            return {"issuer": URL, "jwks_uri": KEYS}
        if url == KEYS:
            return {"keys": [jwk(key, name) for name, key in self.keys.items()]}
        return FetchError(f"{url}: there is no such document")
