"""Forged and replayed credentials of every kind, shown to a whole server: nobody is let in by any.

A row is a request, or what makes one of the server it is shown to. Nobody is let in who is not told who they are: a row
that shows good credentials of somebody without rights besides must stay that somebody, or be refused.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from apiserver_stub.api_server import ApiServer
from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.build import build
from apiserver_stub.flags import FLAGS
from controller_manager.api.wire import Certificate, Request
from controller_manager.base.runtime import Runtime
from controller_manager.serving.http import fold_headers, repeated_headers
from controller_manager.serving.tls import make_ca
from controller_manager.serving.token_keys import VerifyingKey
from controller_manager.serving.trust import CLIENTS, PROXIES, Trust

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NS = "/api/v1/namespaces/default"
CLIENT_CA, PROXY_CA, OTHER_CA = (make_ca(name) for name in ("clients", "proxies", "others"))
FOREVER = 4_000_000_000.0
STATIC, POWERLESS = "s3cret-t0ken", "joes-token"
SERVER_KEY, STRANGER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
KID = VerifyingKey.of(SERVER_KEY.public_key()).name
PEM = SERVER_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
DER = SERVER_KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def root_of(pair: Any) -> str:
    from cryptography import x509

    return hashlib.sha256(
        x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
    ).hexdigest()


def asks(
    *headers: tuple[str, str], certificate: Certificate | None = None, query: tuple[tuple[str, str], ...] = ()
) -> Request:
    """A question who one is, with these headers as they would come over a socket."""
    return Request("POST", WHO_AM_I, query, fold_headers(headers), b"{}", certificate, repeated_headers(headers))


def bearer(token: str) -> Request:
    return asks(("Authorization", f"Bearer {token}"))


class Victim:
    """A server with somebody of each kind of credentials, and what an attacker knows of it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.account: dict[str, Any] = {}

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        certificate = Certificate("admin", ("system:masters",), root_of(CLIENT_CA), FOREVER)
        answer = await self.server.handle(Request(method, path, (), {}, data, certificate))
        found = json.loads(answer.body)
        assert answer.status < 300, found
        return found

    async def who(self, request: Request) -> str:
        """The name that a request is let in by; empty for one that is not."""
        answer = await self.server.handle(request)
        return json.loads(answer.body)["status"]["userInfo"]["username"] if answer.status == 201 else ""

    async def token(self, account: str = "robot", **spec: Any) -> str:
        answer = await self.admin("POST", f"{NS}/serviceaccounts/{account}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Claims that would be good of the account `robot`; None leaves one out."""
        now = int(time.time())
        account = {"name": "robot", "uid": self.account["metadata"]["uid"]}
        claims = {
            "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:default:robot", "jti": "j",
            "iat": now, "nbf": now, "exp": now + 3600,
            "kubernetes.io": {"namespace": "default", "serviceaccount": account},
        }  # fmt: skip
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def signed(self, key: Any = SERVER_KEY, *, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token with these claims: of the server's key, as if it had signed it, or of another."""
        return signed(json.dumps(self.claims(**changed)).encode(), {"alg": "ES256", "kid": KID, **(header or {})}, key)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(payload: bytes, header: dict[str, Any], key: Any = SERVER_KEY) -> str:
    text = f"{encoded(json.dumps(header).encode())}.{encoded(payload)}"
    return f"{text}.{encoded(signature(text.encode(), key))}"


def signature(text: bytes, key: Any) -> bytes:
    from jwt.algorithms import ECAlgorithm

    return bytes(ECAlgorithm(ECAlgorithm.SHA256).sign(text, key))


def hmac_signed(victim: Victim, key: bytes, kid: str = KID) -> str:
    text = (
        f"{encoded(json.dumps({'alg': 'HS256', 'kid': kid}).encode())}.{encoded(json.dumps(victim.claims()).encode())}"
    )
    return f"{text}.{encoded(hmac.digest(key, text.encode(), 'sha256'))}"


def der_signed(victim: Victim) -> str:
    """A token whose signature is in the form of certificates instead of that of tokens."""
    head, body, raw = victim.signed().split(".")
    data = base64.urlsafe_b64decode(raw + "==")
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    r, s = int.from_bytes(data[:32]), int.from_bytes(data[32:])
    der = encode_dss_signature(r, s)
    assert decode_dss_signature(der) == (r, s)
    return f"{head}.{body}.{encoded(der)}"


Row = Request | Callable[[Victim], Request | Awaitable[Request]]


def changed(change: Callable[[str], str]) -> Row:
    """A good token after a change."""
    return lambda victim: bearer(change(victim.signed()))


def with_part(index: int, change: Callable[[str], str]) -> Row:
    def change_part(token: str) -> str:
        parts = token.split(".")
        parts[index] = change(parts[index])
        return ".".join(parts)

    return changed(change_part)


def with_claims(**claims: Any) -> Row:
    return lambda victim: bearer(victim.signed(**claims))


def with_header(**header: Any) -> Row:
    """A token of a stranger, whose header would have the server believe the key."""
    return lambda victim: bearer(victim.signed(STRANGER, header=header))


def unsigned(algorithm: Any) -> Row:
    def forged(victim: Victim) -> Request:
        header = encoded(json.dumps({"alg": algorithm, "kid": KID}).encode())
        return bearer(f"{header}.{encoded(json.dumps(victim.claims()).encode())}.")

    return forged


STRANGERS_KEY = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(STRANGER.public_key()))

SIGNATURES: dict[str, Row] = {
    "truncated by a character": changed(lambda token: token[:-1]),
    "truncated by half": changed(lambda token: token[: len(token) // 2]),
    "without a signature": changed(lambda token: token.rpartition(".")[0] + "."),
    "without a signature and its dot": changed(lambda token: token.rpartition(".")[0]),
    "the payload alone": changed(lambda token: token.split(".")[1]),
    "with another end": changed(lambda token: token + "A"),
    "with a fourth part": changed(lambda token: f"{token}.{encoded(b'{}')}"),
    "with five parts": changed(lambda token: f"{token}.A.A"),
    "with an empty header": with_part(0, lambda _: ""),
    "with an empty payload": with_part(1, lambda _: ""),
    "with a header that is no JSON": with_part(0, lambda _: encoded(b"{")),
    "with a header that is a list": with_part(0, lambda _: encoded(b"[]")),
    "with a payload that is a list": with_part(1, lambda _: encoded(b"[]")),
    "with padding": with_part(2, lambda part: part + "=="),
    "with a space within": with_part(2, lambda part: f"{part[:9]} {part[9:]}"),
    "with a line end within": with_part(2, lambda part: f"{part[:9]}\n{part[9:]}"),
    "with NUL behind": changed(lambda token: token + "\0"),
    "with the signature twice": changed(lambda token: token + token.rpartition(".")[2]),
    "with a signature of nothing but zeros": with_part(2, lambda _: encoded(bytes(64))),
    "with a signature of ones": with_part(2, lambda _: encoded(b"\xff" * 64)),
    "with a short signature": with_part(2, lambda _: encoded(b"\x01")),
    "with the signature in another form": lambda victim: bearer(der_signed(victim)),
    "with the signature of another token": lambda victim: bearer(
        victim.signed().rpartition(".")[0] + "." + victim.signed(jti="other").rpartition(".")[2]
    ),
    "in the JSON form": lambda victim: bearer(
        json.dumps(dict(zip(("protected", "payload", "signature"), victim.signed().split("."), strict=True)))
    ),
    "no algorithm": unsigned("none"),
    "No algorithm": unsigned("None"),
    "NO algorithm": unsigned("NONE"),
    "nOnE": unsigned("nOnE"),
    "an empty algorithm": unsigned(""),
    "an algorithm that is null": unsigned(None),
    "an algorithm that is a list": unsigned(["none"]),
    "HS256 with the public key in PEM": lambda victim: bearer(hmac_signed(victim, PEM)),
    "HS256 with the public key in DER": lambda victim: bearer(hmac_signed(victim, DER)),
    "HS256 with the name of the key": lambda victim: bearer(hmac_signed(victim, KID.encode())),
    "HS256 with an empty key": lambda victim: bearer(hmac_signed(victim, b"")),
    "HS256 with a file for its key": lambda victim: bearer(hmac_signed(victim, b"", "../../../../dev/null")),
    "of a stranger": lambda victim: bearer(victim.signed(STRANGER)),
    "of a stranger without the name of a key": with_header(kid=""),
    "of a stranger, named so": with_header(kid="stranger"),
    "of a stranger whose key is beside": with_header(jwk=STRANGERS_KEY),
    "of a stranger whose key is elsewhere": with_header(jku="https://127.0.0.1:1/keys"),
    "of a stranger with a certificate": with_header(x5c=["MIIB"], x5u="https://127.0.0.1:1/x"),
    "of a stranger with a path for a key": with_header(kid="../../etc/passwd"),
    "of a stranger with a query for a key": with_header(kid="' OR '1'='1"),
    "of a stranger with what must be understood": with_header(crit=["exp"], exp=1),
    "with a payload that is not encoded": with_header(b64=False, crit=["b64"]),
    "with a key of another name": lambda victim: bearer(victim.signed(header={"kid": "another name"})),
    "with an algorithm of another curve": lambda victim: bearer(victim.signed(header={"alg": "ES384"})),
    "with an algorithm of another family": lambda victim: bearer(victim.signed(header={"alg": "RS256"})),
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
    "of an account elsewhere": lambda victim: bearer(
        victim.signed(
            **{
                "kubernetes.io": {
                    "namespace": "kube-system",
                    "serviceaccount": {"name": "robot", "uid": victim.account["metadata"]["uid"]},
                }
            }
        )
    ),
    "bound to a pod that is not there": lambda victim: bearer(
        victim.signed(
            **{
                "kubernetes.io": {
                    **DEEP,
                    "serviceaccount": {"name": "robot", "uid": victim.account["metadata"]["uid"]},
                    "pod": {"name": "none", "uid": "0"},
                }
            }
        )
    ),
}


def after(path: str, again: Any = None, account: str = "robot", **bound: str) -> Row:
    """A token that was good until what it is bound to was deleted, and perhaps made anew."""

    async def replayed(victim: Victim) -> Request:
        spec = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
        request = bearer(await victim.token(account, **spec))
        assert await victim.who(request) == f"system:serviceaccount:default:{account}"
        await victim.admin("DELETE", path, {"gracePeriodSeconds": 0} if "/pods/" in path else None)
        if again is not None:
            await victim.admin("POST", path.rpartition("/")[0], again)
        return request

    return replayed


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    }


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


REPLAYED: dict[str, Row] = {
    "of an account that is gone": after(f"{NS}/serviceaccounts/gone", account="gone"),
    "of an account that is another": after(f"{NS}/serviceaccounts/anew", named("anew"), account="anew"),
    "of a pod that is gone": after(f"{NS}/pods/gone", kind="Pod", name="gone"),
    "of a pod that is another": after(f"{NS}/pods/anew", pod("anew"), kind="Pod", name="anew"),
    "of a secret that is gone": after(f"{NS}/secrets/gone", kind="Secret", name="gone"),
    "of a secret that is another": after(f"{NS}/secrets/anew", named("anew"), kind="Secret", name="anew"),
    "of a node that is gone": after("/api/v1/nodes/gone", kind="Node", name="gone"),
    "of a node that is another": after("/api/v1/nodes/anew", named("anew"), kind="Node", name="anew"),
}


def legacy(change: Callable[[Victim, dict[str, Any]], Awaitable[str | None]] | None = None, **claims: str) -> Row:
    """The token of a secret, after a change of the secret; or one with other claims, that a secret holds."""

    async def shown(victim: Victim) -> Request:
        prefix = "kubernetes.io/serviceaccount"
        name = f"kept-{abs(hash((change, *claims.items()))) % 10**9}"
        token = signed(
            json.dumps(
                {
                    "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
                    f"{prefix}/namespace": "default", f"{prefix}/secret.name": name,
                    f"{prefix}/service-account.name": "robot",
                    f"{prefix}/service-account.uid": victim.account["metadata"]["uid"], **claims,
                }
            ).encode(),
            {"alg": "ES256", "kid": KID},
        )  # fmt: skip
        secret = {"metadata": {"name": name}, "data": {"token": base64.b64encode(token.encode()).decode()}}
        await victim.admin("POST", f"{NS}/secrets", secret)
        if change is not None:
            assert await victim.who(bearer(token)) == "system:serviceaccount:default:robot"
            token = await change(victim, await victim.admin("GET", f"{NS}/secrets/{name}")) or token
        return bearer(token)

    return shown


async def delete(victim: Victim, secret: dict[str, Any]) -> None:
    await victim.admin("DELETE", f"{NS}/secrets/{secret['metadata']['name']}")


async def mark(victim: Victim, secret: dict[str, Any]) -> None:
    secret["metadata"]["labels"] = {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
    await victim.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def replace_token(victim: Victim, secret: dict[str, Any]) -> None:
    secret["data"] = {"token": base64.b64encode(b"another").decode()}
    await victim.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def empty(victim: Victim, secret: dict[str, Any]) -> None:
    del secret["data"]
    await victim.admin("PUT", f"{NS}/secrets/{secret['metadata']['name']}", secret)


async def sign_otherwise(_victim: Victim, secret: dict[str, Any]) -> str:
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


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def basic(credentials: str) -> Request:
    return asks(("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode()))


HEADERS: dict[str, Row] = {
    "a part of a token": bearer(STATIC[:-1]),
    "more than a token": bearer(STATIC + "x"),
    "a token in capitals": bearer(STATIC.upper()),
    "a token with a letter that looks like it": bearer(STATIC.replace("e", "\u0435")),
    "a token with full-width letters": bearer(STATIC.replace("s", "\uff53")),
    "a token in quotes": bearer(f'"{STATIC}"'),
    "a token in percent-encoding": bearer("".join(f"%{ord(letter):02x}" for letter in STATIC)),
    "a token in base64": bearer(base64.b64encode(STATIC.encode()).decode()),
    "a token with NUL": bearer(f"{STATIC}\0"),
    "a token with a tab": bearer(f"\t{STATIC}x"),
    "the digest of a token": bearer(digest_of(STATIC)),
    "the name of a user": bearer("admin"),
    "the uid of a user": bearer("the-uid"),
    "the line of a file": bearer(f"{STATIC},admin,the-uid"),
    "a star": bearer("*"),
    "a huge token": bearer("x" * 100_000),
    "a token that is no text": asks(("Authorization", "Bearer \udcff\udcfe")),
    "nothing": asks(),
    "an empty header": asks(("Authorization", "")),
    "the word alone": asks(("Authorization", "Bearer")),
    "the word and a space": asks(("Authorization", "Bearer ")),
    "another word": asks(("Authorization", f"Token {STATIC}")),
    "no word": asks(("Authorization", STATIC)),
    "the word with a colon": asks(("Authorization", f"Bearer: {STATIC}")),
    "the word and a tab": asks(("Authorization", f"Bearer\t{STATIC}")),
    "the word and two spaces": asks(("Authorization", f"Bearer  {STATIC}")),
    "the word twice": asks(("Authorization", f"Bearer Bearer {STATIC}")),
    "two tokens in a header": asks(("Authorization", f"Bearer {STATIC}, Bearer x")),
    "two headers, a bad one first": asks(("Authorization", "Bearer x"), ("Authorization", f"Bearer {STATIC}")),
    "two headers, a good one first": asks(("Authorization", f"Bearer {STATIC}"), ("Authorization", "Bearer x")),
    "basic, the token as password": basic(f"admin:{STATIC}"),
    "basic, the token as user": basic(f"{STATIC}:"),
    "basic in the URL's form": asks(("Authorization", f"Basic admin:{STATIC}")),
    "digest": asks(("Authorization", 'Digest username="admin", realm="", nonce="", uri="/", response=""')),
    "negotiate": asks(("Authorization", "Negotiate YII=")),
    "a signature of a cloud": asks(("Authorization", "AWS4-HMAC-SHA256 Credential=a/b")),
    "for a proxy": asks(("Proxy-Authorization", f"Bearer {STATIC}")),
    "by another header": asks(("X-Authorization", f"Bearer {STATIC}")),
    "by a header with an underscore": asks(("X_Authorization", f"Bearer {STATIC}")),
    "as a cookie": asks(("Cookie", f"Authorization=Bearer {STATIC}; token={STATIC}")),
    "as access_token in the query": asks(query=(("access_token", STATIC),)),
    "as token in the query": asks(query=(("token", STATIC),)),
    "as authorization in the query": asks(query=(("authorization", f"Bearer {STATIC}"),)),
}  # fmt: skip


def offering(*protocols: str, connection: str = "Upgrade", upgrade: str = "websocket", encoding: str = "") -> Request:
    shown = encoding or encoded(STATIC.encode())
    offered = ", ".join(one.replace("TOKEN", f"base64url.bearer.authorization.k8s.io.{shown}") for one in protocols)
    return asks(("Connection", connection), ("Upgrade", upgrade), ("Sec-WebSocket-Protocol", offered))


WEBSOCKETS: dict[str, Row] = {
    "a token alone": offering("TOKEN"),
    "a token twice": offering("TOKEN", "TOKEN", "v4.channel.k8s.io"),
    "no offer of a websocket": offering("TOKEN", "v4.channel.k8s.io", connection="keep-alive"),
    "an offer of something else": offering("TOKEN", "v4.channel.k8s.io", upgrade="SPDY/3.1"),
    "another encoding": offering("TOKEN", "v4", encoding=base64.b64encode(b"\xfb\xff" + STATIC.encode()).decode()),
    "with padding": offering("TOKEN", "v4", encoding=encoded(STATIC.encode()) + "=="),
    "half of it": offering("TOKEN", "v4", encoding=encoded(STATIC[:-1].encode())),
    "not encoded": offering("TOKEN", "v4", encoding=STATIC),
    "another prefix": offering("base64.bearer.authorization.k8s.io.x", "v4"),
    "no text": offering("TOKEN", "v4", encoding=encoded(b"\xff\xfe")),
}


def bootstrap(number: int, token: str = "", namespace: str = "kube-system", kind: str = "", **data: str) -> Row:
    """A bootstrap token whose secret differs in something from a good one."""

    async def shown(victim: Victim) -> Request:
        name = f"aaa{number:03}"
        good = {"token-id": name, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        more = {key.replace("_", "-"): value for key, value in data.items()}
        kept = {key: value for key, value in {**good, **more}.items() if value}
        secret = {
            "metadata": {"name": f"bootstrap-token-{name}"},
            "type": kind or "bootstrap.kubernetes.io/token",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in kept.items()},
        }
        await victim.admin("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        return bearer(token.replace("ID", name) or f"{name}.0123456789abcdef")

    return shown


BOOTSTRAP: dict[str, Row] = {
    "another secret": bootstrap(1, "ID.0123456789abcdeg"),
    "half a secret": bootstrap(2, "ID.01234567"),
    "no secret": bootstrap(3, "ID."),
    "another id": bootstrap(4, "zzzzzz.0123456789abcdef"),
    "in capitals": bootstrap(5, "ID.0123456789ABCDEF"),
    "with a space": bootstrap(6, "ID. 0123456789abcdef"),
    "without the usage": bootstrap(7, usage_bootstrap_authentication=""),
    "for signing only": bootstrap(8, usage_bootstrap_authentication="false", usage_bootstrap_signing="true"),
    "expired": bootstrap(9, expiration="2001-01-01T00:00:00Z"),
    "with an expiration nobody can read": bootstrap(10, expiration="never"),
    "of an administrator": bootstrap(11, auth_extra_groups="system:masters"),
    "of a group that begins otherwise": bootstrap(12, auth_extra_groups="x:system:bootstrappers:a"),
    "of another type": bootstrap(13, kind="Opaque"),
    "of another namespace": bootstrap(14, namespace="default"),
    "whose secret is of another token": bootstrap(15, token_id="bbbbbb"),
}

AS_ADMIN = (("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"))


def certified(
    name: str, authority: Any = None, *groups: str, expires: float = FOREVER, uid: str | None = ""
) -> Certificate:
    return Certificate(name, groups, root_of(authority) if authority else "", expires, uid)


FRONT = certified("front", PROXY_CA)
PROXIED: dict[str, Row] = {
    "nobody's headers": asks(*AS_ADMIN),
    "nobody's headers from a forwarded address": asks(*AS_ADMIN, ("X-Forwarded-For", "127.0.0.1")),
    "a proxy of another name": asks(*AS_ADMIN, certificate=certified("back", PROXY_CA)),
    "a proxy of a name in capitals": asks(*AS_ADMIN, certificate=certified("FRONT", PROXY_CA)),
    "a proxy of no name": asks(*AS_ADMIN, certificate=certified("", PROXY_CA)),
    "a proxy that has expired": asks(*AS_ADMIN, certificate=certified("front", PROXY_CA, expires=1.0)),
    "a proxy of another authority": asks(*AS_ADMIN, certificate=certified("front", OTHER_CA)),
    "a proxy of no authority": asks(*AS_ADMIN, certificate=certified("front")),
    "a proxy without a user": asks(AS_ADMIN[1], certificate=FRONT),
    "a proxy with an empty user": asks(("X-Remote-User", ""), AS_ADMIN[1], certificate=FRONT),
    "a proxy with an empty user first": asks(("X-Remote-User", ""), *AS_ADMIN, certificate=FRONT),
    "a proxy with underscores": asks(("X_Remote_User", "admin"), AS_ADMIN[1], certificate=FRONT),
    "a proxy with spaces within": asks(("X-Remote- User", "admin"), certificate=FRONT),
    "a proxy with another letter": asks(("X-Remote-U\u017fer", "admin"), certificate=FRONT),
    "a proxy whose user is no text": asks(("X-Remote-User", "ad\udcffmin"), AS_ADMIN[1], certificate=FRONT),
    "a proxy whose group is no text": asks(AS_ADMIN[0], ("X-Remote-Group", "\udcff"), certificate=FRONT),
    "a proxy whose extra is no text": asks(*AS_ADMIN, ("X-Remote-Extra-A", "\udcff"), certificate=FRONT),
    "a proxy as a client": asks(certificate=FRONT),
    "a proxy in the group of administrators": asks(certificate=certified("front", PROXY_CA, "system:masters")),
    "in the query": asks(query=AS_ADMIN),
}

CERTIFICATES: dict[str, Row] = {
    "of another authority": asks(certificate=certified("admin", OTHER_CA, "system:masters")),
    "of no authority": asks(certificate=certified("admin", None, "system:masters")),
    "that has expired": asks(certificate=certified("admin", CLIENT_CA, "system:masters", expires=1.0)),
    "that names nobody": asks(certificate=certified("", CLIENT_CA, "system:masters")),
    "whose uid cannot be told": asks(certificate=certified("admin", CLIENT_CA, "system:masters", uid=None)),
    "that shows the server's own name": asks(certificate=certified("system:apiserver", None, "system:masters")),
    "as a header": asks(("X-SSL-Client-Cert", "MIIB"), ("SSL_CLIENT_S_DN", "CN=admin,O=system:masters")),
    "forwarded": asks(("X-Forwarded-Client-Cert", 'Subject="CN=admin,O=system:masters"')),
}

KINDS = {
    "signatures": SIGNATURES, "claims": CLAIMS, "replayed": REPLAYED, "legacy": LEGACY, "headers": HEADERS,
    "websockets": WEBSOCKETS, "bootstrap": BOOTSTRAP, "proxied": PROXIED, "certificates": CERTIFICATES,
}  # fmt: skip

JOE = ("Authorization", f"Bearer {POWERLESS}")


def acting(*headers: tuple[str, str]) -> Request:
    """Joe, who may do nothing, tries to be somebody else."""
    return asks(JOE, *headers)


AS = ("Impersonate-User", "admin")
IMPERSONATING: dict[str, Request] = {
    "a user": acting(AS),
    "a user in small letters": acting(("impersonate-user", "admin")),
    "a user in capitals": acting(("IMPERSONATE-USER", "admin")),
    "himself": acting(("Impersonate-User", "joe")),
    "himself, of a group": acting(("Impersonate-User", "joe"), ("Impersonate-Group", "system:masters")),
    "himself in capitals": acting(("Impersonate-User", "JOE")),
    "two users, himself first": acting(("Impersonate-User", "joe"), AS),
    "two users, himself last": acting(AS, ("Impersonate-User", "joe")),
    "an empty user and another": acting(("Impersonate-User", ""), AS),
    "the anonymous user": acting(("Impersonate-User", "system:anonymous")),
    "a node": acting(("Impersonate-User", "system:node:n1")),
    "a node in capitals": acting(("Impersonate-User", "system:node:N1")),
    "a service account": acting(("Impersonate-User", "system:serviceaccount:default:robot")),
    "half a service account": acting(("Impersonate-User", "system:serviceaccount:default")),
    "the server": acting(("Impersonate-User", "system:apiserver")),
    "administrators": acting(AS, ("Impersonate-Group", "system:masters")),
    "administrators among others": acting(AS, ("Impersonate-Group", "a"), ("Impersonate-Group", "system:masters")),
    "administrators in a list": acting(AS, ("Impersonate-Group", "a, system:masters")),
    "a group only": acting(("Impersonate-Group", "system:masters")),
    "an empty group": acting(AS, ("Impersonate-Group", "")),
    "five groups": acting(AS, *(("Impersonate-Group", f"g{number}") for number in range(5))),
    "a uid": acting(AS, ("Impersonate-Uid", "the-uid")),
    "a uid only": acting(("Impersonate-Uid", "the-uid")),
    "an extra": acting(AS, ("Impersonate-Extra-Scopes", "all")),
    "an extra only": acting(("Impersonate-Extra-Scopes", "all")),
    "an extra of no name": acting(AS, ("Impersonate-Extra-", "all")),
    "an extra with a slash": acting(AS, ("Impersonate-Extra-acme.io%2Fscopes", "all")),
    "an extra that leads elsewhere": acting(AS, ("Impersonate-Extra-..%2f..%2fusers", "admin")),
    "an extra of a credential": acting(AS, ("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", "n1")),
    "a user with a letter that looks like it": acting(("Impersonate-User", "\u0430dmin")),
    "a user with another form of a letter": acting(("Impersonate-User", "admi\u0144")),
    "a user that is no text": acting(("Impersonate-User", "ad\udcffmin")),
    "a user with NUL": acting(("Impersonate-User", "admin\0")),
    "a huge user": acting(("Impersonate-User", "a" * 50_000)),
    "a star": acting(("Impersonate-User", "*")),
    "as a proxy would": acting(*AS_ADMIN),
    "as a proxy would, and so": acting(*AS_ADMIN, AS),
    "with underscores": acting(("Impersonate_User", "admin")),
    "with another letter in the header": acting(("Imper\u017fonate-User", "admin")),
    "with a space in the header": acting(("Impersonate-User ", "admin")),
    "in the query": asks(JOE, query=(AS, ("Impersonate-Group", "system:masters"))),
}


@pytest.fixture
async def victim(tmp_path: Path) -> Any:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "sa.key").write_bytes(SERVER_KEY.private_bytes(*form))
    (tmp_path / "proxies.pem").write_bytes(PROXY_CA.certificate)
    (tmp_path / "tokens").write_text(f"{STATIC},admin,the-uid,system:masters\n{POWERLESS},joe,joe\n")
    trust = Trust()
    trust.set(CLIENTS, CLIENT_CA.certificate)
    trust.set(PROXIES, PROXY_CA.certificate)
    flags = (
        "--storage-backend=memory", "--advertise-address=192.0.2.1", "--authorization-mode=RBAC",
        f"--token-auth-file={tmp_path / 'tokens'}", f"--service-account-signing-key-file={tmp_path / 'sa.key'}",
        "--enable-bootstrap-token-auth", f"--requestheader-client-ca-file={tmp_path / 'proxies.pem'}",
        "--requestheader-allowed-names=front", "--requestheader-uid-headers=X-Remote-Uid",
    )  # fmt: skip
    server = build(FLAGS.parse(flags), Runtime("test"), certificates=ClientCertificates(trust))
    await server.start()
    found = Victim(server)
    found.account = await found.admin("POST", f"{NS}/serviceaccounts", named("robot"))
    for name in ("gone", "anew"):
        await found.admin("POST", f"{NS}/serviceaccounts", named(name))
        await found.admin("POST", "/api/v1/nodes", named(name))
        await found.admin("POST", f"{NS}/secrets", named(name))
        await found.admin("POST", f"{NS}/pods", pod(name))
    yield found
    await server.stop()


GOOD: dict[str, Row] = {
    "admin": bearer(STATIC),
    "joe": bearer(POWERLESS),
    "system:serviceaccount:default:robot": lambda victim: bearer(victim.signed()),
    "system:serviceaccount:default:robot ": legacy(),
    "system:bootstrap:aaa999": bootstrap(999),
    "jane": asks(certificate=certified("jane", CLIENT_CA)),
    "alice": asks(("X-Remote-User", "alice"), certificate=FRONT),
    "admin ": offering("TOKEN", "v4.channel.k8s.io"),
}


async def request_of(row: Row, victim: Victim) -> Request:
    found = row if isinstance(row, Request) else row(victim)
    return found if isinstance(found, Request) else await found


async def test_good_credentials_of_each_kind_let_in(victim: Victim) -> None:
    for name, row in GOOD.items():
        assert await victim.who(await request_of(row, victim)) == name.strip(), name


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_is_let_in(victim: Victim, kind: str) -> None:
    let_in = {}
    for name, row in KINDS[kind].items():
        request = await request_of(row, victim)
        for _ in range(2):  # nothing that is remembered of the first time lets in the second
            if found := await victim.who(request):
                let_in[name] = found
    assert not let_in


async def test_joe_becomes_nobody_else(victim: Victim) -> None:
    became = {}
    for name, request in IMPERSONATING.items():
        found = await victim.who(request)
        if found not in ("", "joe"):
            became[name] = found
    assert not became
    refused = [name for name, request in IMPERSONATING.items() if not await victim.who(request)]
    let_through = {
        "an empty user and another",  # as upstream, the first of several headers counts
        "as a proxy would",
        "with underscores",
        "with another letter in the header",
        "with a space in the header",
        "in the query",
    }
    assert set(IMPERSONATING) - set(refused) <= let_through, "these name no header of impersonation"


async def test_what_is_asked_in_vain_in_anothers_name_is_not_done(victim: Victim) -> None:
    for name, request in IMPERSONATING.items():
        path, body = f"{NS}/configmaps", json.dumps(named("stolen")).encode()
        asked = Request("POST", path, request.query, request.headers, body, None, request.repeated)
        answer = await victim.server.handle(asked)
        assert answer.status in (400, 403), name
    there = (await victim.admin("GET", f"{NS}/configmaps"))["items"]
    assert "stolen" not in [one["metadata"]["name"] for one in there]


def test_the_table_is_long_enough() -> None:
    rows = sum(map(len, KINDS.values())) + len(IMPERSONATING)
    assert rows >= 200, rows


async def test_a_flood_of_forgeries_leaves_good_credentials_good(victim: Victim) -> None:
    forged = [victim.signed(STRANGER, jti=str(number)) for number in range(500)]
    found = await asyncio.gather(*(victim.who(bearer(token)) for token in forged))
    assert not any(found)
    assert await victim.who(bearer(victim.signed())) == "system:serviceaccount:default:robot"
