"""Tokens signed by an external program: key rotation, and a program that is slow, wrong or unavailable."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiserver_stub.authn import external_signer
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.controller_manager.common.transport.grpc_servers import Refuse, grpc_server

NS = "/api/v1/namespaces/default"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ADMIN = Certificate("admin", ("system:masters",))


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form)


class Program:
    """A signer with keys by name; the last of them signs."""

    def __init__(self) -> None:
        self.keys = {"one": ec.generate_private_key(ec.SECP256R1())}
        self.excluded: set[str] = set()
        self.asked: list[str] = []
        self.hint = 3600
        self.longest = 86400
        self.header: dict[str, Any] = {}
        self.signature: str | None = None
        self.refuse: dict[str, grpc.StatusCode] = {}
        self.delay = 0.0
        self.asked_thrice = asyncio.Event()

    @property
    def answers(self) -> dict[str, Any]:
        return {"FetchKeys": self.fetch, "Sign": self.sign, "Metadata": self.metadata}

    async def _begin(self, method: str) -> None:
        self.asked.append(method)
        if self.asked.count("FetchKeys") == 3:
            self.asked_thrice.set()
        await asyncio.sleep(self.delay)
        if method in self.refuse:
            raise Refuse(self.refuse[method], "not today")

    async def fetch(self, _message: Any) -> Any:
        await self._begin("FetchKeys")
        keys = [
            {"key_id": name, "key": public(key), "exclude_from_oidc_discovery": name in self.excluded}
            for name, key in self.keys.items()
        ]
        return {"keys": keys, "data_timestamp": {"seconds": 5, "nanos": 500_000_000}, "refresh_hint_seconds": self.hint}

    async def sign(self, message: Any) -> Any:
        await self._begin("Sign")
        name, key = list(self.keys.items())[-1]
        header = {"alg": "ES256", "typ": "JWT", "kid": name, **self.header}
        encoded = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
        signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(
            f"{encoded}.{message['claims']}".encode(), key
        )
        encoded_signature = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        return {"header": encoded, "signature": encoded_signature if self.signature is None else self.signature}

    async def metadata(self, _message: Any) -> Any:
        await self._begin("Metadata")
        return {"max_token_expiration_seconds": self.longest}


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    found = Program()
    async with grpc_server(f"unix://{tmp_path / 'signer.sock'}", "external_jwt", found.answers):
        yield found


def make_server(path: Path, *flags: str) -> ApiServer:
    flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1", *flags)
    return build(FLAGS.parse((*flags, f"--service-account-signing-endpoint={path}")), Runtime("test"))


class ApiCaller:
    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def __call__(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await self.server.handle(Request(method, path, (), headers, data, None if token else ADMIN))
        return answer.status, json.loads(answer.body)

    async def token(self, seconds: int = 3600) -> str:
        code, answer = await self("POST", f"{NS}/serviceaccounts/robot/token", {"spec": {"expirationSeconds": seconds}})
        return str(answer["status"]["token"]) if code == 201 else f"refused with {code}"

    async def username(self, token: str) -> str:
        code, answer = await self("POST", WHO_AM_I, {}, token)
        return str(answer["status"]["userInfo"]["username"]) if code == 201 else ""


@pytest.fixture
async def ask(program: Program, tmp_path: Path) -> AsyncIterator[ApiCaller]:
    server = make_server(tmp_path / "signer.sock")
    await server.start()
    found = ApiCaller(server)
    await found("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})
    yield found
    await server.stop()


ROBOT = "system:serviceaccount:default:robot"


async def test_external_program_signs_and_its_keys_verify(program: Program, ask: ApiCaller) -> None:
    token = await ask.token()
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "typ": "JWT", "kid": "one"}
    assert await ask.username(token) == ROBOT
    assert program.asked == ["FetchKeys", "Metadata", "Sign"]


async def test_unknown_key_id_fetches_keys(program: Program, ask: ApiCaller) -> None:
    old = await ask.token()
    program.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    new = await ask.token()
    assert [await ask.username(old), await ask.username(new)] == [ROBOT, ROBOT]
    assert program.asked.count("FetchKeys") == 2


async def test_removed_key_no_longer_verifies(program: Program, ask: ApiCaller) -> None:
    old = await ask.token()
    program.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
    new = await ask.token()
    assert await ask.username(new) == ROBOT
    header, body, signature = old.split(".")
    assert await ask.username(f"{header}.{body}.{signature[:-4]}AAAA") == ""


async def test_unknown_key_ids_are_fetched_once_per_second(program: Program, ask: ApiCaller) -> None:
    head = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"unknown%d"}').rstrip(b"=").decode()
    _, body, signature = (await ask.token()).split(".")
    forged = [f"{head.replace('d', 'd')}.{body}.{signature}{number:03}" for number in range(50)]
    assert not any(await asyncio.gather(*map(ask.username, forged)))
    assert program.asked.count("FetchKeys") <= 2


async def test_published_keys_omit_excluded_ones(program: Program, tmp_path: Path) -> None:
    program.keys = {"hidden": ec.generate_private_key(ec.SECP256R1()), **program.keys}
    program.excluded = {"hidden"}
    program.hint = 120
    server = make_server(tmp_path / "signer.sock")
    await server.start()
    answer = await server.handle(Request("GET", "/openid/v1/jwks", certificate=ADMIN))
    assert isinstance(answer.body, bytes)
    assert [key["kid"] for key in json.loads(answer.body)["keys"]] == ["one"]
    assert answer.headers["cache-control"] in ("public, max-age=119", "public, max-age=120")
    await server.stop()


BAD_SIGNATURES: dict[str, dict[str, Any]] = {
    "a type that is none": {"header": {"typ": "at+jwt"}},
    "no algorithm": {"header": {"alg": "none"}},
    "a symmetric algorithm": {"header": {"alg": "HS256"}},
    "no name of a key": {"header": {"kid": ""}},
    "a huge name of a key": {"header": {"kid": "k" * 2000}},
    "more than is known": {"header": {"jku": "https://evil.example"}},
    "no signature": {"signature": ""},
    "a key that is not published": {"excluded": {"one"}},
    "a refusal": {"refuse": {"Sign": grpc.StatusCode.PERMISSION_DENIED}},
    "signer unavailable": {"refuse": {"Sign": grpc.StatusCode.UNAVAILABLE}},
}


@pytest.mark.parametrize("case", BAD_SIGNATURES)
async def test_malformed_signature_response_yields_no_token(program: Program, tmp_path: Path, case: str) -> None:
    server = make_server(tmp_path / "signer.sock")
    for name, value in BAD_SIGNATURES[case].items():
        setattr(program, name, value)
    await server.start()
    ask = ApiCaller(server)
    await ask("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})
    assert await ask.token() == "refused with 500"
    await server.stop()


async def test_token_lifetime_is_limited_by_program(program: Program, tmp_path: Path) -> None:
    program.longest = 7200
    server = make_server(tmp_path / "signer.sock")
    await server.start()
    ask = ApiCaller(server)
    await ask("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})
    claims = jwt.decode(await ask.token(86400), options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 7200
    await server.stop()


NO_START: dict[str, tuple[dict[str, Any], str]] = {
    "no keys": ({"keys": {}}, "0 keys"),
    "keys that are good for no time": ({"hint": 0}, "0 seconds"),
    "tokens of too short a life": ({"longest": 599}, "599 seconds"),
    "a refusal": ({"refuse": {"FetchKeys": grpc.StatusCode.PERMISSION_DENIED}}, "PERMISSION_DENIED"),
    "no metadata": ({"refuse": {"Metadata": grpc.StatusCode.UNIMPLEMENTED}}, "UNIMPLEMENTED"),
}


@pytest.mark.parametrize("case", NO_START)
async def test_unusable_program_fails_the_start(program: Program, tmp_path: Path, case: str) -> None:
    changes, why = NO_START[case]
    for name, value in changes.items():
        setattr(program, name, value)
    server = make_server(tmp_path / "signer.sock")
    with pytest.raises(CannotStart, match=f"--service-account-signing-endpoint: .*{why}"):
        await server.start()
    await server.stop()


async def test_start_waits_for_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_signer, "_START", 0.5)
    server = make_server(tmp_path / "absent.sock")
    with pytest.raises(CannotStart, match="did not return its keys"):
        await server.start()
    await server.stop()


async def test_flag_lifetime_above_program_limit_fails_start(program: Program, tmp_path: Path) -> None:
    program.longest = 7200
    server = make_server(tmp_path / "signer.sock", "--service-account-max-token-expiration=3h")
    with pytest.raises(CannotStart, match="--service-account-max-token-expiration"):
        await server.start()
    await server.stop()


async def test_keys_remain_valid_while_program_fails(program: Program, ask: ApiCaller) -> None:
    token = await ask.token()
    program.refuse = {"FetchKeys": grpc.StatusCode.UNAVAILABLE, "Sign": grpc.StatusCode.UNAVAILABLE}
    assert await ask.token() == "refused with 500"
    assert await ask.username(token) == ROBOT
    program.refuse = {}
    assert await ask.username(await ask.token()) == ROBOT


@pytest.mark.parametrize(
    "flags",
    [
        ("--service-account-signing-endpoint=/s", "--service-account-signing-key-file=/k"),
        ("--service-account-signing-endpoint=/s", "--service-account-key-file=/k"),
        ("--service-account-signing-endpoint=@a/b",),
    ],
)
def test_conflicting_flags_are_rejected(flags: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match="--service-account-signing-endpoint"):
        FLAGS.parse(flags)


async def test_keys_are_refreshed_after_hint(program: Program, tmp_path: Path) -> None:
    program.hint = 1
    server = make_server(tmp_path / "signer.sock")
    await server.start()
    async with Tasks() as tasks:
        tasks.start(server.run(), name="the server")
        async with asyncio.timeout(10):
            await program.asked_thrice.wait()
    await server.stop()
