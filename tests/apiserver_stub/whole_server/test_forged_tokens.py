"""Forged and replayed service account tokens are rejected by a whole server."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from controller_manager.common.api.wire import Request
from tests.apiserver_stub.whole_server.forgery import (
    ISSUER,
    KID,
    NS,
    SERVER_KEY,
    STRANGER,
    Row,
    TargetServer,
    accepted_rows,
    bearer,
    encoded,
    object_named,
    pod,
    request_of,
    signature,
    signed,
    start_target,
)

PEM = SERVER_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
DER = SERVER_KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def hmac_signed(target: TargetServer, key: bytes, kid: str = KID) -> str:
    text = (
        f"{encoded(json.dumps({'alg': 'HS256', 'kid': kid}).encode())}.{encoded(json.dumps(target.claims()).encode())}"
    )
    return f"{text}.{encoded(hmac.digest(key, text.encode(), 'sha256'))}"


def der_signed(target: TargetServer) -> str:
    """A token whose signature has the form of certificates instead of that of tokens."""
    head, body, raw = target.signed().split(".")
    data = base64.urlsafe_b64decode(raw + "==")
    r, s = int.from_bytes(data[:32]), int.from_bytes(data[32:])
    der = encode_dss_signature(r, s)
    assert decode_dss_signature(der) == (r, s)
    return f"{head}.{body}.{encoded(der)}"


def with_change(change: Callable[[str], str]) -> Row:
    """A valid token after a change."""
    return lambda target: bearer(change(target.signed()))


def with_part(index: int, change: Callable[[str], str]) -> Row:
    def change_part(token: str) -> str:
        parts = token.split(".")
        parts[index] = change(parts[index])
        return ".".join(parts)

    return with_change(change_part)


def with_claims(**claims: Any) -> Row:
    return lambda target: bearer(target.signed(**claims))


def with_header(**header: Any) -> Row:
    """A foreign token whose header names a key of the attacker."""
    return lambda target: bearer(target.signed(STRANGER, header=header))


def unsigned(algorithm: Any) -> Row:
    def forged(target: TargetServer) -> Request:
        header = encoded(json.dumps({"alg": algorithm, "kid": KID}).encode())
        return bearer(f"{header}.{encoded(json.dumps(target.claims()).encode())}.")

    return forged


STRANGERS_KEY = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(STRANGER.public_key()))
SIGNATURES: dict[str, Row] = {
    "truncated by a character": with_change(lambda token: token[:-1]),
    "truncated by half": with_change(lambda token: token[: len(token) // 2]),
    "without a signature": with_change(lambda token: token.rpartition(".")[0] + "."),
    "without a signature and its dot": with_change(lambda token: token.rpartition(".")[0]),
    "the payload alone": with_change(lambda token: token.split(".")[1]),
    "with another end": with_change(lambda token: token + "A"),
    "with a fourth part": with_change(lambda token: f"{token}.{encoded(b'{}')}"),
    "with five parts": with_change(lambda token: f"{token}.A.A"),
    "with an empty header": with_part(0, lambda _: ""),
    "with an empty payload": with_part(1, lambda _: ""),
    "with a header that is no JSON": with_part(0, lambda _: encoded(b"{")),
    "with a header that is a list": with_part(0, lambda _: encoded(b"[]")),
    "with a payload that is a list": with_part(1, lambda _: encoded(b"[]")),
    "with padding": with_part(2, lambda part: part + "=="),
    "with a space within": with_part(2, lambda part: f"{part[:9]} {part[9:]}"),
    "with a line end within": with_part(2, lambda part: f"{part[:9]}\n{part[9:]}"),
    "with NUL behind": with_change(lambda token: token + "\0"),
    "with the signature twice": with_change(lambda token: token + token.rpartition(".")[2]),
    "with a signature of nothing but zeros": with_part(2, lambda _: encoded(bytes(64))),
    "with a signature of ones": with_part(2, lambda _: encoded(b"\xff" * 64)),
    "with a short signature": with_part(2, lambda _: encoded(b"\x01")),
    "with the signature in another form": lambda target: bearer(der_signed(target)),
    "with the signature of another token": lambda target: bearer(
        target.signed().rpartition(".")[0] + "." + target.signed(jti="other").rpartition(".")[2]
    ),
    "in the JSON form": lambda target: bearer(
        json.dumps(dict(zip(("protected", "payload", "signature"), target.signed().split("."), strict=True)))
    ),
    "no algorithm": unsigned("none"),
    "No algorithm": unsigned("None"),
    "NO algorithm": unsigned("NONE"),
    "nOnE": unsigned("nOnE"),
    "an empty algorithm": unsigned(""),
    "an algorithm that is null": unsigned(None),
    "an algorithm that is a list": unsigned(["none"]),
    "HS256 with the public key in PEM": lambda target: bearer(hmac_signed(target, PEM)),
    "HS256 with the public key in DER": lambda target: bearer(hmac_signed(target, DER)),
    "HS256 with the name of the key": lambda target: bearer(hmac_signed(target, KID.encode())),
    "HS256 with an empty key": lambda target: bearer(hmac_signed(target, b"")),
    "HS256 with a file for its key": lambda target: bearer(hmac_signed(target, b"", "../../../../dev/null")),
    "of a stranger": lambda target: bearer(target.signed(STRANGER)),
    "of a stranger without the name of a key": with_header(kid=""),
    "of a stranger, named so": with_header(kid="stranger"),
    "of a stranger whose key is beside": with_header(jwk=STRANGERS_KEY),
    "of a stranger whose key is elsewhere": with_header(jku="https://127.0.0.1:1/keys"),
    "of a stranger with a certificate": with_header(x5c=["MIIB"], x5u="https://127.0.0.1:1/x"),
    "of a stranger with a path for a key": with_header(kid="../../etc/passwd"),
    "of a stranger with a query for a key": with_header(kid="' OR '1'='1"),
    "of a stranger with what must be understood": with_header(crit=["exp"], exp=1),
    "with a payload that is not encoded": with_header(b64=False, crit=["b64"]),
    "with a key of another name": lambda target: bearer(target.signed(header={"kid": "another name"})),
    "with an algorithm of another curve": lambda target: bearer(target.signed(header={"alg": "ES384"})),
    "with an algorithm of another family": lambda target: bearer(target.signed(header={"alg": "RS256"})),
}
DEEP = {"namespace": "default"}
CLAIMS: dict[str, Row] = {
    "for another audience": with_claims(aud=["vault"]),
    "for an audience that begins so": with_claims(aud=[ISSUER + "/"]),
    "for no audience": with_claims(aud=[]),
    "without an audience": with_claims(aud=None),
    "of another issuer": with_claims(iss="https://evil.example"),
    "of an issuer that begins so": with_claims(iss=ISSUER + ".evil.example"),
    "of an issuer in capitals": with_claims(iss=ISSUER.upper()),
    "of a list of issuers": with_claims(iss=[ISSUER]),
    "without an issuer": with_claims(iss=None),
    "of the old issuer": with_claims(iss="kubernetes/serviceaccount"),
    "expired": with_claims(exp=int(time.time()) - 120),
    "expired long ago": with_claims(exp=0),
    "before its time": with_claims(nbf=int(time.time()) + 3600),
    "issued in the future": with_claims(iat=int(time.time()) + 3600),
    "without an end": with_claims(exp=None),
    "whose end is a text": with_claims(exp="9999999999"),
    "whose end is a list": with_claims(exp=[9999999999]),
    "without a subject of the platform": with_claims(**{"kubernetes.io": None}),
    "with a subject that is a text": with_claims(**{"kubernetes.io": "default"}),
    "without an account": with_claims(**{"kubernetes.io": {"namespace": "default"}}),
    "of an account of another uid": with_claims(
        **{"kubernetes.io": {**DEEP, "serviceaccount": {"name": "robot", "uid": "0"}}}
    ),
    "of an account without a uid": with_claims(**{"kubernetes.io": {**DEEP, "serviceaccount": {"name": "robot"}}}),
    "of an account that is not there": with_claims(
        **{"kubernetes.io": {**DEEP, "serviceaccount": {"name": "nobody", "uid": "0"}}}
    ),
    "of an account elsewhere": lambda target: bearer(
        target.signed(
            **{
                "kubernetes.io": {
                    "namespace": "kube-system",
                    "serviceaccount": {"name": "robot", "uid": target.account["metadata"]["uid"]},
                }
            }
        )
    ),
    "bound to a pod that is not there": lambda target: bearer(
        target.signed(
            **{
                "kubernetes.io": {
                    **DEEP,
                    "serviceaccount": {"name": "robot", "uid": target.account["metadata"]["uid"]},
                    "pod": {"name": "none", "uid": "0"},
                }
            }
        )
    ),
}


def bound_token_after(path: str, again: Any = None, account: str = "robot", **bound: str) -> Row:
    """A token that was valid until its bound object was deleted, and perhaps created again."""

    async def replayed(target: TargetServer) -> Request:
        spec = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
        request = bearer(await target.token(account, **spec))
        assert await target.username(request) == f"system:serviceaccount:default:{account}"
        await target.admin("DELETE", path, {"gracePeriodSeconds": 0} if "/pods/" in path else None)
        if again is not None:
            await target.admin("POST", path.rpartition("/")[0], again)
        return request

    return replayed


REPLAYED: dict[str, Row] = {
    "of an account that is gone": bound_token_after(f"{NS}/serviceaccounts/gone", account="gone"),
    "of an account that is another": bound_token_after(
        f"{NS}/serviceaccounts/anew", object_named("anew"), account="anew"
    ),
    "of a pod that is gone": bound_token_after(f"{NS}/pods/gone", kind="Pod", name="gone"),
    "of a pod that is another": bound_token_after(f"{NS}/pods/anew", pod("anew"), kind="Pod", name="anew"),
    "of a secret that is gone": bound_token_after(f"{NS}/secrets/gone", kind="Secret", name="gone"),
    "of a secret that is another": bound_token_after(
        f"{NS}/secrets/anew", object_named("anew"), kind="Secret", name="anew"
    ),
    "of a node that is gone": bound_token_after("/api/v1/nodes/gone", kind="Node", name="gone"),
    "of a node that is another": bound_token_after(
        "/api/v1/nodes/anew", object_named("anew"), kind="Node", name="anew"
    ),
}


def legacy(change: Callable[[TargetServer, dict[str, Any]], Awaitable[str | None]] | None = None, **claims: str) -> Row:
    """The token of a secret, after a change of the secret; or a secret with a token of other claims."""

    async def shown(target: TargetServer) -> Request:
        prefix = "kubernetes.io/serviceaccount"
        name = f"kept-{abs(hash((change, *claims.items()))) % 10**9}"
        token = signed(
            json.dumps(
                {
                    "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
                    f"{prefix}/namespace": "default", f"{prefix}/secret.name": name,
                    f"{prefix}/service-account.name": "robot",
                    f"{prefix}/service-account.uid": target.account["metadata"]["uid"], **claims,
                }
            ).encode(),
            {"alg": "ES256", "kid": KID},
        )  # fmt: skip
        secret = {"metadata": {"name": name}, "data": {"token": base64.b64encode(token.encode()).decode()}}
        await target.admin("POST", f"{NS}/secrets", secret)
        if change is not None:
            assert await target.username(bearer(token)) == "system:serviceaccount:default:robot"
            token = await change(target, await target.admin("GET", f"{NS}/secrets/{name}")) or token
        return bearer(token)

    return shown


async def delete(target: TargetServer, secret: dict[str, Any]) -> None:
    await target.admin("DELETE", f"{NS}/secrets/{secret['metadata']['name']}")


async def mark(target: TargetServer, secret: dict[str, Any]) -> None:
    secret["metadata"]["labels"] = {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
    await target.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def replace_token(target: TargetServer, secret: dict[str, Any]) -> None:
    secret["data"] = {"token": base64.b64encode(b"another").decode()}
    await target.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def empty(target: TargetServer, secret: dict[str, Any]) -> None:
    del secret["data"]
    await target.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def sign_otherwise(_victim: TargetServer, secret: dict[str, Any]) -> str:
    head, body, _ = base64.b64decode(secret["data"]["token"]).decode().split(".")
    return f"{head}.{body}.{encoded(signature(f'{head}.{body}'.encode(), STRANGER))}"


PREFIX = "kubernetes.io/serviceaccount"
LEGACY: dict[str, Row] = {
    "whose secret is gone": legacy(delete),
    "that is marked as invalid": legacy(mark),
    "that the secret holds no more": legacy(replace_token),
    "whose secret is empty": legacy(empty),
    "signed by a stranger": legacy(sign_otherwise),
    "whose claims are of two accounts": legacy(sub="system:serviceaccount:kube-system:robot"),
    "of an administrator": legacy(sub="system:admin"),
    "of an account of another uid": legacy(**{f"{PREFIX}/service-account.uid": "0"}),
    "of an account without a uid": legacy(**{f"{PREFIX}/service-account.uid": ""}),
    "of another secret": legacy(**{f"{PREFIX}/secret.name": "other"}),
    "of no secret": legacy(**{f"{PREFIX}/secret.name": ""}),
    "of a secret elsewhere": legacy(**{f"{PREFIX}/namespace": "kube-system"}),
    "of a secret by a path": legacy(**{f"{PREFIX}/secret.name": "../default/other"}),
}
TOKENS = {"signatures": SIGNATURES, "claims": CLAIMS, "replayed": REPLAYED, "legacy": LEGACY}


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[TargetServer]:
    async with start_target(tmp_path) as found:
        yield found


async def test_valid_tokens_are_accepted(target: TargetServer) -> None:
    for row in (lambda target: bearer(target.signed()), legacy()):
        assert await target.username(await request_of(row, target)) == "system:serviceaccount:default:robot"


@pytest.mark.parametrize("kind", TOKENS)
async def test_forged_tokens_are_rejected(target: TargetServer, kind: str) -> None:
    assert not await accepted_rows(target, TOKENS[kind])


async def test_many_forged_tokens_do_not_affect_valid_ones(target: TargetServer) -> None:
    forged = [target.signed(STRANGER, jti=str(number)) for number in range(500)]
    found = await asyncio.gather(*(target.username(bearer(token)) for token in forged))
    assert not any(found)
    assert await target.username(bearer(target.signed())) == "system:serviceaccount:default:robot"
