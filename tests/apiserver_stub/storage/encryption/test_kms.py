"""KMS v2 with a service over a Unix socket: seeds, their renewal, and failing services."""

import asyncio
import json
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.common.config_file import Seconds
from apiserver_stub.storage.encryption.config import KMS
from apiserver_stub.storage.encryption.kms import EncryptedObject, KMSMetrics, KMSProvider
from apiserver_stub.storage.encryption.transformers import KeyNeeded, TransformError
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import get_logger
from tests.controller_manager.common.transport.grpc_servers import Refuse, grpc_server

DATA, AT = b'{"kind":"Secret"}', b"/registry/secrets/default/a"


class Service:
    """A service that encrypts by reversing the text, and follows its instructions."""

    def __init__(self) -> None:
        self.status: Tree = {"version": "v2", "healthz": "ok", "key_id": "key-1"}
        self.key_id = ""
        self.asked: list[str] = []
        self.answer: Any = None

    async def report_status(self, _: Tree) -> Tree:
        self.asked.append("Status")
        return self.status

    async def encrypt(self, message: Tree) -> Tree | bytes:
        self.asked.append("Encrypt")
        key_id = self.key_id or self.status["key_id"]
        return self.answer or {"ciphertext": message["plaintext"][::-1], "key_id": key_id, "annotations": {"a.b": b"c"}}

    async def decrypt(self, message: Tree) -> Tree | bytes:
        self.asked.append("Decrypt")
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer == "hang":
            await asyncio.sleep(60)
        return self.answer or {"plaintext": message["ciphertext"][::-1]}

    @asynccontextmanager
    async def serving(self, target: str) -> AsyncIterator[None]:
        answers = {"Status": self.report_status, "Encrypt": self.encrypt, "Decrypt": self.decrypt}
        async with grpc_server(target, "kms_v2", answers):
            yield


@pytest.fixture
def target() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kms") as folder:  # socket paths must be short
        yield f"unix://{folder}/kms.sock"


@asynccontextmanager
async def provider(target: str, timeout: float = 3) -> AsyncIterator[KMSProvider]:
    config = KMS(name="plug", endpoint=target, api_version="v2", timeout=Seconds(timeout))
    made = KMSProvider(config, KMSMetrics(CollectorRegistry(), "me"), get_logger("test"))
    yield made
    await made.close()


async def decrypted(kms: KMSProvider, stored: bytes) -> bytes:
    try:
        return kms.decrypt(stored, AT).data
    except KeyNeeded as needed:
        await needed.obtain()
        return kms.decrypt(stored, AT).data


async def test_kube_apiserver_data_is_decrypted_with_one_call(target: str) -> None:
    rows = json.loads((Path(__file__).parent / "data" / "stored.json").read_text())
    row = next(row for row in rows if "serviceaccounts" in row["context"])
    stored, at = b64decode(row["stored"]), row["context"].encode()
    service = Service()
    async with service.serving(target), provider(target) as kms:
        assert stored.startswith(kms.prefix)
        stored = stored.removeprefix(kms.prefix)
        with pytest.raises(KeyNeeded) as needed:
            kms.decrypt(stored, at)
        await asyncio.gather(needed.value.obtain(), needed.value.obtain())
        found = kms.decrypt(stored, at)
        assert found.data.startswith(b"k8s\0")
        assert found.stale  # the service's key is still unknown
        assert service.asked == ["Decrypt"]
        await kms.probe()
        assert not kms.decrypt(stored, at).stale


async def test_objects_share_a_seed_until_the_key_changes(target: str) -> None:
    service = Service()
    async with service.serving(target), provider(target) as kms:
        with pytest.raises(TransformError, match="has no key: it has not been probed yet"):
            kms.encrypt(DATA, AT)
        await kms.probe()
        assert kms.problem == ""
        stored = [kms.encrypt(DATA, AT) for _ in range(3)]
        assert len(set(stored)) == 3
        assert {EncryptedObject.read(each).key_id for each in stored} == {"key-1"}
        assert [kms.decrypt(each, AT) for each in stored] == [(DATA, False)] * 3
        await kms.probe()
        assert service.asked == ["Status", "Encrypt", "Status"]
        service.status = {**service.status, "key_id": "key-2"}
        await kms.probe()
        assert EncryptedObject.read(kms.encrypt(DATA, AT)).key_id == "key-2"
        assert kms.decrypt(stored[0], AT) == (DATA, True)
        with pytest.raises(TransformError, match="has changed"):
            kms.decrypt(stored[0], b"/registry/secrets/default/b")


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"healthz": "sick"}, "reports that it is unhealthy: 'sick'"),
        ({"healthz": "x" * 999}, "unhealthy: 'xxx"),
        ({"version": "v1"}, "another version than v2: 'v1'"),
        ({"key_id": ""}, "a key ID that is empty"),
        ({"key_id": "k" * 1025}, "longer than 1024 bytes"),
    ],
)
async def test_unhealthy_service_is_reported_and_key_stays_in_use(target: str, status: Tree, problem: str) -> None:
    service = Service()
    async with service.serving(target), provider(target) as kms:
        await kms.probe()
        service.status = {**service.status, **status}
        await kms.probe()
        assert problem in kms.problem
        assert len(kms.problem) < 400
        assert kms.decrypt(kms.encrypt(DATA, AT), AT).data == DATA


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"ciphertext": b"", "key_id": "key-1"}, "the encrypted key is empty"),
        ({"ciphertext": b"x" * 1025, "key_id": "key-1"}, "more than 1024 bytes"),
        ({"ciphertext": b"x", "key_id": "key-9"}, "encrypts with another key than its Status reports"),
        ({"ciphertext": b"x", "key_id": ""}, "the key ID is empty"),
        ({"ciphertext": b"x", "key_id": "key-1", "annotations": {"a.b": b"x" * 40000}}, "more than 32768 bytes"),
        ({"ciphertext": b"x", "key_id": "key-1", "annotations": {"plain": b"x"}}, "not a fully qualified domain name"),
        (b"\xff\xff", "failed to answer Encrypt"),
    ],
)
async def test_invalid_service_answer_yields_no_key(target: str, answer: Any, problem: str) -> None:
    service = Service()
    service.answer = answer
    async with service.serving(target), provider(target) as kms:
        await kms.probe()
        assert problem in kms.problem
        with pytest.raises(TransformError):
            kms.encrypt(DATA, AT)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Refuse(grpc.StatusCode.NOT_FOUND, "no such key"), "NOT_FOUND"),
        ("hang", "DEADLINE_EXCEEDED"),
        (b"\xff\xff", ""),
        ({"plaintext": b"short"}, "unknown-non-grpc"),
    ],
)
async def test_failed_decryption_is_an_error_with_code(target: str, answer: Any, code: str) -> None:
    service = Service()
    async with service.serving(target), provider(target) as writer, provider(target, timeout=0.2) as reader:
        await writer.probe()
        stored = writer.encrypt(DATA, AT)
        service.answer = answer
        with pytest.raises(TransformError) as caught:
            await decrypted(reader, stored)
        assert caught.value.code == code or not code
        service.answer = None
        assert await decrypted(reader, stored) == DATA


async def test_service_going_down_and_up_is_handled(target: str) -> None:
    service = Service()
    async with provider(target, timeout=1) as kms:
        await kms.probe()
        assert "UNAVAILABLE" in kms.problem
        async with service.serving(target):
            for _ in range(50):
                await kms.probe()
                if not kms.problem:
                    break
                await asyncio.sleep(0.1)
            stored = kms.encrypt(DATA, AT)
        await kms.probe()
        assert kms.problem
        assert await decrypted(kms, stored) == DATA
        assert kms.decrypt(kms.encrypt(DATA, AT), AT).data == DATA  # for three minutes


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\xff",
        EncryptedObject(b"", "k", b"s", {}).write(),
        EncryptedObject(b"d", "", b"s", {}).write(),
        EncryptedObject(b"d", "k", b"", {}).write(),
        EncryptedObject(b"d", "k", b"s", {}, 7).write(),
    ],
)
async def test_malformed_stored_data_is_rejected(target: str, stored: bytes) -> None:
    async with provider(target) as kms:
        with pytest.raises(TransformError):
            kms.decrypt(stored, AT)
