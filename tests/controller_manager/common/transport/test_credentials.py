"""Credentials are renewed in time, once for all callers; the old ones are used while renewal fails."""

import asyncio
import json
import math
import ssl
from pathlib import Path

import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.transport.config import ClientIdentity, ExecPlugin
from controller_manager.common.transport.credentials import Credentials, from_identity, read_files, read_output
from controller_manager.common.transport.transport import ConfigError, Credential, TransportError

PLUGIN = ExecPlugin("p")


class Source:
    """Returns numbered tokens with a lifetime, or fails."""

    def __init__(self, lifetime: float = math.inf) -> None:
        self.lifetime = lifetime
        self.asked = 0
        self.failing = False

    async def __call__(self, now: float) -> Credential:
        self.asked += 1
        await asyncio.sleep(1)
        if self.failing:
            raise ConfigError("no")
        return Credential.until(now + self.lifetime, now, token=f"t{self.asked}", certificate=b"", key=b"")


@pytest.mark.virtual
async def test_concurrent_callers_share_one_renewal() -> None:
    source = Source()
    credentials = Credentials(source)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(credentials.current()) for _ in range(20)]
    assert {task.result().token for task in asking} == {"t1"}
    assert source.asked == 1


@pytest.mark.virtual
async def test_cancelled_caller_does_not_block_others() -> None:
    source = Source()
    credentials = Credentials(source)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(credentials.current())
        await asyncio.sleep(0.5)
        second = group.create_task(credentials.current())
        await asyncio.sleep(0)
        first.cancel()
    assert second.result().token == "t2"


@pytest.mark.virtual
async def test_renewal_is_a_minute_or_a_quarter_before_expiry() -> None:
    for lifetime, fresh, due in ((3600.0, 3538.0, 3541.0), (40.0, 28.0, 31.0)):
        credentials = Credentials(Source(lifetime))
        began = wall_seconds()
        assert (await credentials.current()).token == "t1"
        await asyncio.sleep(began + fresh - wall_seconds())
        assert (await credentials.current()).token == "t1"
        await asyncio.sleep(began + due - wall_seconds())
        assert (await credentials.current()).token == "t2"


@pytest.mark.virtual
async def test_expired_new_credential_is_used_once() -> None:
    source = Source(-5.0)
    credentials = Credentials(source)
    async with asyncio.timeout(60):
        assert (await credentials.current()).token == "t1"
        assert (await credentials.current()).token == "t2"


@pytest.mark.virtual
async def test_old_credential_is_used_while_renewal_fails() -> None:
    source = Source(3600.0)
    credentials = Credentials(source)
    await credentials.current()
    source.failing = True
    await asyncio.sleep(3545)
    assert (await credentials.current()).token == "t1"
    asked = source.asked
    await asyncio.sleep(5)
    assert (await credentials.current()).token == "t1"
    assert source.asked == asked
    await asyncio.sleep(60)
    with pytest.raises(ConfigError, match="no"):
        await credentials.current()
    source.failing = False
    assert (await credentials.current()).token.startswith("t")


@pytest.mark.virtual
async def test_refused_credential_is_replaced_once() -> None:
    source = Source()
    credentials = Credentials(source)
    refused = await credentials.current()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(credentials.after_refusal(refused)) for _ in range(5)]
    assert {task.result().token for task in asking} == {"t2"}
    assert (await credentials.after_refusal(refused)).token == "t2"
    assert source.asked == 2


@pytest.mark.virtual
async def test_tls_refusal_renews_credential_for_next_request() -> None:
    credentials, shown = Credentials(Source()), list[str]()

    async def exchange(request: Request, credential: Credential) -> Response:
        shown.append(credential.token)
        if credential.token == "t1":
            raise TransportError("refused") from ssl.SSLError(1, "alert unknown ca")
        return Response(200)

    with pytest.raises(TransportError):
        await credentials.send(Request("POST", "/"), exchange)
    assert (await credentials.send(Request("POST", "/"), exchange)).status == 200
    assert shown == ["t1", "t2"]


@pytest.mark.virtual
async def test_credential_files_are_reread_within_a_minute(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    credentials = Credentials(from_identity(ClientIdentity(token_file=str(token), token="ignored")))
    assert (await credentials.current()).token == "one"
    token.write_text("two")
    await asyncio.sleep(59)
    assert (await credentials.current()).token == "one"
    await asyncio.sleep(2)
    assert (await credentials.current()).token == "two"
    token.write_text("")
    await asyncio.sleep(61)
    assert (await credentials.current()).token == "two"


def test_inline_values_are_used_and_files_take_precedence(tmp_path: Path) -> None:
    found = read_files(ClientIdentity(token="t", certificate=b"c", key=b"k"), 0.0)
    assert (found.token, found.certificate, found.key, found.renew_at) == ("t", b"c", b"k", math.inf)
    (tmp_path / "c").write_bytes(b"from file")
    found = read_files(ClientIdentity(certificate_file=str(tmp_path / "c"), certificate=b"c"), 100.0)
    assert (found.certificate, found.renew_at) == (b"from file", 160.0)


def test_token_file_with_two_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a\nb")
    with pytest.raises(ConfigError, match="one line"):
        read_files(ClientIdentity(token_file=str(tmp_path / "token")), 0.0)


def printed(**status: str) -> bytes:
    document = {"apiVersion": PLUGIN.api_version, "kind": "ExecCredential", "status": status}
    return json.dumps(document).encode()


def test_plugin_output_is_parsed() -> None:
    found = read_output(PLUGIN, printed(token="t", expirationTimestamp="1970-01-01T01:00:00Z"), 0.0)
    assert (found.token, found.expires, found.renew_at) == ("t", 3600.0, 3540.0)
    found = read_output(PLUGIN, printed(clientCertificateData="C", clientKeyData="K"), 0.0)
    assert (found.certificate, found.key, found.expires) == (b"C", b"K", math.inf)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (b"secret", "it is not JSON"),
        (b'{"apiVersion":"client.authentication.k8s.io/v1"}', "kind"),
        (b'{"apiVersion":"other/v1","kind":"ExecCredential","status":{"token":"secret"}}', "no ExecCredential of"),
        (printed(), "neither"),
        (printed(clientCertificateData="secret"), "only one"),
        (printed(token="secret\r\nx: y"), "one line"),
        (printed(token="secret", expirationTimestamp="secret"), "expirationTimestamp"),
        (b'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":"secret"}', "status"),
    ],
)
def test_invalid_plugin_output_is_refused_without_secrets(output: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read_output(PLUGIN, output, 0.0)
    assert "exec plugin p" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_repr_of_credential_hides_secrets() -> None:
    assert "secret" not in repr(Credential(token="secret", certificate=b"secret", key=b"secret"))
