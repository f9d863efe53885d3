"""Forged tokens are rejected or unknown; valid ones are accepted."""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from controller_manager.common.base.clock import wall_seconds
from tests.apiserver_stub.authn.jwt.conftest import RunAuthenticators
from tests.apiserver_stub.authn.jwt.issuer import EC_KEYS, RSA_KEYS, URL, Issuer, b64, jwk

pytestmark = pytest.mark.virtual
EDWARDS = ed25519.Ed25519PrivateKey.generate()
STRANGER = rsa.generate_private_key(65537, 2048)
OTHER_CURVE = ec.generate_private_key(ec.SECP384R1())
PEM = RSA_KEYS[0].public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)  # fmt: skip
DER = RSA_KEYS[0].public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)  # fmt: skip
Forge = Callable[[Issuer], str]


def raw(header: Any, payload: Any, signature: bytes | str = b"") -> str:
    parts = [b64(json.dumps(one) if isinstance(one, dict) else one) for one in (header, payload)]
    return ".".join([*parts, b64(signature)])


def signed(issuer: Issuer, header: str | bytes, payload: str | bytes | None = None) -> str:
    """A token with this header and payload and a valid signature."""
    text = f"{b64(header)}.{b64(json.dumps(issuer.claims()) if payload is None else payload)}"
    signature = RSA_KEYS[0].sign(text.encode(), padding.PKCS1v15(), SHA256())
    return f"{text}.{b64(signature)}"


def hashed(issuer: Issuer, secret: bytes, algorithm: str = "HS256") -> str:
    text = f"{b64(json.dumps({'alg': algorithm, 'kid': 'one'}))}.{b64(json.dumps(issuer.claims()))}"
    return f"{text}.{b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def with_short_signature(issuer: Issuer, length: int) -> str:
    text, _, signature = issuer.token().rpartition(".")
    return f"{text}.{signature[:length]}"


def with_changed_claims(issuer: Issuer, **claims: Any) -> str:
    """A valid token whose claims were changed afterwards."""
    header, _, signature = issuer.token().split(".")
    return f"{header}.{b64(json.dumps(issuer.claims(**claims)))}.{signature}"


def with_foreign_claims(issuer: Issuer) -> str:
    """The signature of one token on the claims of another."""
    one, other = issuer.token().split("."), issuer.token(sub="root").split(".")
    return ".".join([one[0], other[1], one[2]])


def header_key(issuer: Issuer, **header: Any) -> str:
    return issuer.token(STRANGER, header=header)


def flipped(issuer: Issuer, part: int) -> str:
    parts = issuer.token().split(".")
    middle = len(parts[part]) // 2
    letter = "A" if parts[part][middle] != "A" else "B"
    parts[part] = parts[part][:middle] + letter + parts[part][middle + 1 :]
    return ".".join(parts)


def ago(seconds: float) -> int:
    return int(wall_seconds() - seconds)


FORGED: dict[str, Forge] = {
    "no token": lambda _: "",
    "one part": lambda _: "abc",
    "two parts": lambda i: i.token().rpartition(".")[0],
    "four parts": lambda i: i.token() + ".x",
    "empty parts": lambda _: "..",
    "a space before": lambda i: " " + i.token(),
    "a space after": lambda i: i.token() + " ",
    "a line within": lambda i: i.token().replace(".", ".\n", 1),
    "no ASCII": lambda i: i.token() + "ä",
    "padding": lambda i: i.token() + "==",
    "other base64": lambda i: i.token().replace("-", "+").replace("_", "/") + "+",
    "a document in JSON": lambda i: json.dumps(
        {"payload": i.token().split(".")[1], "protected": i.token().split(".")[0], "signature": i.token().split(".")[2]}
    ),
    "alg none": lambda i: raw({"alg": "none"}, i.claims()),
    "alg None": lambda i: raw({"alg": "None"}, i.claims()),
    "alg nOnE, with a signature": lambda i: raw({"alg": "nOnE", "kid": "one"}, i.claims(), b"x" * 256),
    "alg empty": lambda i: raw({"alg": ""}, i.claims()),
    "no alg": lambda i: raw({"kid": "one"}, i.claims()),
    "alg a number": lambda i: raw({"alg": 5}, i.claims()),
    "alg a list": lambda i: raw({"alg": ["RS256"]}, i.claims()),
    "alg null": lambda i: raw({"alg": None}, i.claims()),
    "alg in lower case": lambda i: i.token().replace(i.token().split(".")[0], b64('{"alg":"rs256","kid":"one"}'), 1),
    "HS256 with the public key in PEM": lambda i: hashed(i, PEM),
    "HS256 with the public key in DER": lambda i: hashed(i, DER),
    "HS256 with the modulus": lambda i: hashed(i, jwk(RSA_KEYS[0], "one")["n"].encode()),
    "HS256 with nothing": lambda i: hashed(i, b""),
    "HS512 with the public key": lambda i: hashed(i, PEM, "HS512"),
    "EdDSA of a stranger": lambda i: i.token(ed25519.Ed25519PrivateKey.generate(), "EdDSA", kid="edwards"),
    "EdDSA with the name of another key": lambda i: i.token(EDWARDS, "EdDSA", kid="one"),
    "Ed448": lambda i: i.token(ed448.Ed448PrivateKey.generate(), "EdDSA", kid="edwards"),
    "ES256K": lambda i: i.token(ec.generate_private_key(ec.SECP256K1()), "ES256K"),
    "no signature": lambda i: with_short_signature(i, 0),
    "a signature cut by one": lambda i: with_short_signature(i, -1),
    "half a signature": lambda i: with_short_signature(i, 100),
    "a signature of zeros": lambda i: raw({"alg": "RS256", "kid": "one"}, i.claims(), bytes(256)),
    "a longer signature": lambda i: i.token() + "AAAA",
    "a signature with a bit changed": lambda i: flipped(i, 2),
    "a payload with a bit changed": lambda i: flipped(i, 1),
    "a header with a bit changed": lambda i: flipped(i, 0),
    "another user afterwards": lambda i: with_changed_claims(i, sub="root"),
    "a later end afterwards": lambda i: with_changed_claims(i, exp=2**40),
    "the signature of another": with_foreign_claims,
    "the key of a stranger": lambda i: i.token(STRANGER),
    "the key of a stranger, no name": lambda i: i.token(STRANGER, kid=None),
    "the key of a stranger, its name": lambda i: i.token(STRANGER, kid="stranger"),
    "a key in the header": lambda i: header_key(i, jwk=jwk(STRANGER, "one")),
    "a key in the header without a name": lambda i: i.token(STRANGER, kid=None, header={"jwk": jwk(STRANGER, "one")}),
    "keys elsewhere": lambda i: header_key(i, jku="https://evil.example/keys"),
    "a certificate elsewhere": lambda i: header_key(i, x5u="https://evil.example/certificate"),
    "a certificate in the header": lambda i: header_key(i, x5c=["MIIB"]),
    "a name that leads to a file": lambda i: i.token(STRANGER, kid="../../../../dev/null"),
    "a name that asks a database": lambda i: i.token(STRANGER, kid="x' UNION SELECT 'y"),
    "a name that is a command": lambda i: i.token(STRANGER, kid="one; rm -rf /"),
    "the good key by another name": lambda i: i.token(kid="two"),
    "a name in upper case": lambda i: i.token(kid="ONE"),
    "a name with a space": lambda i: i.token(kid="one "),
    "a name that is a number": lambda i: signed(i, '{"alg":"RS256","kid":1}'),
    "a name that is a list": lambda i: signed(i, '{"alg":"RS256","kid":["one"]}'),
    "PS256 of an RS256 signature": lambda i: signed(i, '{"alg":"PS256","kid":"one"}'),
    "RS512 of an RS256 signature": lambda i: signed(i, '{"alg":"RS512","kid":"one"}'),
    "ES256 of an RSA key": lambda i: signed(i, '{"alg":"ES256","kid":"one"}'),
    "the wrong curve": lambda i: i.token(OTHER_CURVE, "ES384", kid="curve"),
    "a curve that is not of the algorithm": lambda i: i.token(EC_KEYS["ES384"], "ES256", kid="p384"),
    "names twice in the header": lambda i: signed(i, '{"alg":"RS256","kid":"one","alg":"RS256"}'),
    "alg twice, none first": lambda i: signed(i, '{"alg":"none","alg":"RS256","kid":"one"}'),
    "extensions that must be understood": lambda i: i.token(header={"crit": ["exp"], "exp": 1}),
    "b64 that must be understood": lambda i: i.token(header={"crit": ["b64"], "b64": True}),
    "nothing that must be understood": lambda i: signed(i, '{"alg":"RS256","kid":"one","crit":[]}'),
    "a payload that is not encoded": lambda i: signed(i, '{"alg":"RS256","kid":"one","b64":false}'),
    "a header that is a list": lambda i: signed(i, "[]"),
    "a header that is a text": lambda i: signed(i, '"RS256"'),
    "a header that is null": lambda i: signed(i, "null"),
    "a header that is no JSON": lambda i: signed(i, "alg=RS256"),
    "a header that is empty": lambda i: signed(i, ""),
    "a header that is no UTF-8": lambda i: signed(i, b'{"alg":"RS256","kid":"\xff"}'),
    "a huge header": lambda i: signed(i, json.dumps({"alg": "RS256", "kid": "one", "x": "x" * 20_000})),
    "a header nested deeply": lambda i: signed(i, '{"alg":"RS256","kid":"one","x":' + "[" * 5000 + "]" * 5000 + "}"),
    "a huge token": lambda i: i.token(x="x" * 200_000),
    "claims nested deeply": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims())[:-1] + ',"x":' + "[" * 9000 + "]" * 9000 + "}"
    ),
    "encrypted": lambda i: ".".join([b64('{"alg":"RSA-OAEP","enc":"A256GCM"}'), "x", "x", "x", "x"]),
    "a token within a token": lambda i: signed(i, '{"alg":"RS256","kid":"one","cty":"JWT"}', i.token()),
    "compressed": lambda i: signed(i, '{"alg":"RS256","kid":"one","zip":"DEF"}', b"\x78\x9c"),
    "claims that are a list": lambda i: signed(i, '{"alg":"RS256","kid":"one"}', "[]"),
    "claims that are no JSON": lambda i: signed(i, '{"alg":"RS256","kid":"one"}', "iss=x"),
    "claims that are no UTF-8": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims()).encode().replace(b"jane", b"\xffane")
    ),
    "NaN": lambda i: signed(i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims(exp=float("nan")))),
    "an infinite end": lambda i: signed(i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims(exp=float("inf")))),
    "expired": lambda i: i.token(exp=ago(1)),
    "expired long ago": lambda i: i.token(exp=0),
    "expired, as a text": lambda i: i.token(exp=str(ago(1))),
    "an end below zero": lambda i: i.token(exp=-(2**62)),
    "an end beyond time": lambda i: i.token(exp=1e300),
    "no end": lambda i: i.token(exp=None),
    "an end that is null": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps({**i.claims(), "exp": None})
    ),
    "an end that is a list": lambda i: i.token(exp=[2**40]),
    "an end that is true": lambda i: i.token(exp=True),
    "the end twice, the last is over": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims())[:-1] + ',"exp":1}'
    ),
    "too early": lambda i: i.token(nbf=ago(-120)),
    "a beginning that is a text": lambda i: i.token(nbf="soon"),
    "another issuer": lambda i: i.token(iss="https://evil.example"),
    "no issuer": lambda i: i.token(iss=None),
    "an issuer with a slash": lambda i: i.token(iss=URL + "/"),
    "an issuer in upper case": lambda i: i.token(iss=URL.upper()),
    "an issuer that is a list": lambda i: i.token(iss=[URL]),
    "the issuer of the cluster": lambda i: i.token(iss="https://kubernetes.default.svc"),
    "issuers, the last is another": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims())[:-1] + ',"iss":"https://evil.example"}'
    ),
    "another audience": lambda i: i.token(aud="other"),
    "other audiences": lambda i: i.token(aud=["other", "clusters"]),
    "an audience in a text": lambda i: i.token(aud="cluster other"),
    "no audience": lambda i: i.token(aud=None),
    "audiences that are none": lambda i: i.token(aud=[]),
    "an audience that is an object": lambda i: i.token(aud={"cluster": True}),
    "audiences that are numbers": lambda i: i.token(aud=["cluster", 5]),
    "no subject": lambda i: i.token(sub=None),
    "an empty subject": lambda i: i.token(sub=""),
    "a subject that is a number": lambda i: i.token(sub=5),
    "a subject that is a list": lambda i: i.token(sub=["jane"]),
}  # fmt: skip


def publish(issuer: Issuer) -> None:
    """Publish the keys that the table uses."""
    issuer.keys = {"one": RSA_KEYS[0], "curve": EC_KEYS["ES256"], "p384": EC_KEYS["ES384"], "p521": EC_KEYS["ES512"]}
    issuer.keys["edwards"] = EDWARDS


@pytest.mark.parametrize("what", FORGED)
async def test_forged_token_is_rejected(what: str, issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    publish(issuer)
    async with run_authenticators() as authn:
        assert await authn.user(issuer.token()) is not None
        assert await authn.user(FORGED[what](issuer)) is None
        assert authn.why
        assert all("evil" not in url for url, _ in issuer.asked)


GOOD: dict[str, Forge] = {
    **{name: lambda i, name=name: i.token(algorithm=name) for name in ("RS256", "RS384", "RS512")},
    **{name: lambda i, name=name: i.token(algorithm=name) for name in ("PS256", "PS384", "PS512")},
    "ES256": lambda i: i.token(EC_KEYS["ES256"], "ES256", kid="curve"),
    "ES384": lambda i: i.token(EC_KEYS["ES384"], "ES384", kid="p384"),
    "ES512": lambda i: i.token(EC_KEYS["ES512"], "ES512", kid="p521"),
    "EdDSA": lambda i: i.token(EDWARDS, "EdDSA", kid="edwards"),
    "no name of the key": lambda i: i.token(kid=None),
    "an empty name of the key": lambda i: i.token(kid=""),
    "several audiences": lambda i: i.token(aud=["other", "cluster"]),
    "a clock that is ahead by less than a minute": lambda i: i.token(nbf=ago(-50)),
    "an end in this second": lambda i: i.token(exp=int(wall_seconds()) + 1),
    "an end with a fraction": lambda i: i.token(exp=wall_seconds() + 60.5),
    "the good user last": lambda i: signed(
        i, '{"alg":"RS256","kid":"one"}', json.dumps(i.claims(sub="root"))[:-1] + ',"sub":"jane"}'
    ),
    "an odd type": lambda i: i.token(header={"typ": "at+jwt"}),
    "a key URL in the header, which is ignored": lambda i: i.token(header={"jku": "https://evil.example/keys"}),
}


@pytest.mark.parametrize("what", GOOD)
async def test_valid_token_is_accepted(what: str, issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    publish(issuer)
    async with run_authenticators() as authn:
        user = await authn.user(GOOD[what](issuer))
        assert user is not None, authn.why
        assert user.name == "jane"
        assert all("evil" not in url for url, _ in issuer.asked)


async def test_weak_and_private_keys_are_ignored(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    weak = rsa.generate_private_key(65537, 1024)
    private = {**jwt.algorithms.RSAAlgorithm.to_jwk(STRANGER, as_dict=True), "kid": "private"}
    issuer.answers["https://issuer.example/keys"] = {
        "keys": [
            jwk(weak, "weak"),
            private,
            jwk(STRANGER, "sealing", use="enc"),
            jwk(STRANGER, "bound", alg="PS256"),
            {"kty": "oct", "k": b64(PEM), "kid": "secret"},
            {"kty": "OKP", "crv": "Ed25519", "x": b64(bytes(32)), "kid": "edwards"},
            {"kty": "EC", "crv": "P-256", "x": b64(bytes(32)), "y": b64(bytes(32)), "kid": "off the curve"},
            {"kty": "RSA", "n": "", "e": "", "kid": "empty"},
            {"kty": ["RSA"], "alg": {}, "kid": 5},
            jwk(RSA_KEYS[0], "one", use="sig", alg="RS256"),
        ]
    }
    async with run_authenticators() as authn:
        assert await authn.user(issuer.token()) is not None
        for key, kid in ((weak, "weak"), (STRANGER, "private"), (STRANGER, "sealing"), (STRANGER, "bound")):
            assert await authn.user(issuer.token(key, kid=kid)) is None
        assert await authn.user(issuer.token(STRANGER, "PS256", kid="bound")) is not None
        assert await authn.user(issuer.token(algorithm="RS512")) is None


async def test_algorithms_not_listed_in_flag_are_rejected(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    publish(issuer)
    async with run_authenticators(algorithms=("ES256", "PS384")) as authn:
        assert await authn.user(issuer.token()) is None
        assert await authn.user(issuer.token(algorithm="PS256")) is None
        assert await authn.user(issuer.token(algorithm="PS384")) is not None
        assert await authn.user(issuer.token(EC_KEYS["ES256"], "ES256", kid="curve")) is not None
