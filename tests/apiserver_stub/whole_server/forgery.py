"""A server with users of each kind of credentials, and forged credentials against it."""

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import ECAlgorithm

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.http import fold_headers, repeated_headers
from controller_manager.common.serving.tls import make_ca
from controller_manager.common.serving.token_keys import VerifyingKey
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NS = "/api/v1/namespaces/default"
CLIENT_CA, PROXY_CA, OTHER_CA = (make_ca(name) for name in ("clients", "proxies", "others"))
FOREVER = 4_000_000_000.0
STATIC, POWERLESS = "s3cret-t0ken", "joes-token"
SERVER_KEY, STRANGER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
KID = VerifyingKey.of(SERVER_KEY.public_key()).name


def ca_digest(pair: Any) -> str:
    return hashlib.sha256(
        load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
    ).hexdigest()


def whoami(
    *headers: tuple[str, str], certificate: Certificate | None = None, query: tuple[tuple[str, str], ...] = ()
) -> Request:
    """A SelfSubjectReview with these headers, as they come over a socket."""
    return Request("POST", WHO_AM_I, query, fold_headers(headers), b"{}", certificate, repeated_headers(headers))


def bearer(token: str) -> Request:
    return whoami(("Authorization", f"Bearer {token}"))


class TargetServer:
    """A server with users of each kind of credentials, and what an attacker knows of it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.account: dict[str, Any] = {}

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        certificate = Certificate("admin", ("system:masters",), ca_digest(CLIENT_CA), FOREVER)
        answer = await self.server.handle(Request(method, path, (), {}, data, certificate))
        found = json.loads(answer.body)
        assert answer.status < 300, found
        return found

    async def username(self, request: Request) -> str:
        """The authenticated user name; empty if the request is rejected."""
        answer = await self.server.handle(request)
        return json.loads(answer.body)["status"]["userInfo"]["username"] if answer.status == 201 else ""

    async def token(self, account: str = "robot", **spec: Any) -> str:
        answer = await self.admin("POST", f"{NS}/serviceaccounts/{account}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Valid claims of the account `robot`; None removes one."""
        now = int(time.time())
        account = {"name": "robot", "uid": self.account["metadata"]["uid"]}
        claims = {
            "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:default:robot", "jti": "j",
            "iat": now, "nbf": now, "exp": now + 3600,
            "kubernetes.io": {"namespace": "default", "serviceaccount": account},
        }  # fmt: skip
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def signed(self, key: Any = SERVER_KEY, *, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token with these claims, signed with the server's key or with another."""
        return signed(json.dumps(self.claims(**changed)).encode(), {"alg": "ES256", "kid": KID, **(header or {})}, key)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(payload: bytes, header: dict[str, Any], key: Any = SERVER_KEY) -> str:
    text = f"{encoded(json.dumps(header).encode())}.{encoded(payload)}"
    return f"{text}.{encoded(signature(text.encode(), key))}"


def signature(text: bytes, key: Any) -> bytes:
    return bytes(ECAlgorithm(ECAlgorithm.SHA256).sign(text, key))


# A request, or a function that makes one for the target server.
Row = Request | Callable[[TargetServer], Request | Awaitable[Request]]


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    }


def object_named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


AS_ADMIN = (("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"))


@asynccontextmanager
async def start_target(tmp_path: Path) -> AsyncIterator[TargetServer]:
    """Start a server with users of each kind of credentials."""
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
    found = TargetServer(server)
    found.account = await found.admin("POST", f"{NS}/serviceaccounts", object_named("robot"))
    for name in ("gone", "anew"):
        await found.admin("POST", f"{NS}/serviceaccounts", object_named(name))
        await found.admin("POST", "/api/v1/nodes", object_named(name))
        await found.admin("POST", f"{NS}/secrets", object_named(name))
        await found.admin("POST", f"{NS}/pods", pod(name))
    try:
        yield found
    finally:
        await server.stop()


async def request_of(row: Row, target: TargetServer) -> Request:
    found = row if isinstance(row, Request) else row(target)
    return found if isinstance(found, Request) else await found


async def accepted_rows(target: TargetServer, rows: Mapping[str, Row]) -> dict[str, str]:
    """The users of the rows that are authenticated, by row."""
    found = {}
    for row, shown in rows.items():
        request = await request_of(shown, target)
        for _ in range(2):  # the cache of the first attempt must not authenticate the second
            if name := await target.username(request):
                found[row] = name
    return found
