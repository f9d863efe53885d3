"""Service account tokens of controllers: request, renewal and backoff."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from controller_manager.app.service_accounts import DEADLINE, LIFE, LONGEST_PAUSE, REST, Account, TokenBackoff
from controller_manager.common.api.core import SERVICE_ACCOUNTS
from controller_manager.common.api.errors import Forbidden, NotFound, ServiceUnavailable
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.log import get_logger
from controller_manager.common.transport.credentials import Credentials
from controller_manager.framework import Client, ConfigError
from controller_manager.testing import Cluster, FaultyNetwork

pytestmark = pytest.mark.virtual

KEY = Key("kube-system", "greeter")
TOKEN = "/api/v1/namespaces/kube-system/serviceaccounts/greeter/token"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def network(cluster: Cluster) -> FaultyNetwork:
    return FaultyNetwork(lambda _: cluster.transport())


@pytest.fixture
def account(network: FaultyNetwork) -> Account:
    return Account(Client(network.connect()), KEY.name, get_logger("test"))


async def test_missing_service_account_is_created(cluster: Cluster, account: Account) -> None:
    with pytest.raises(NotFound):
        await cluster.client.get(SERVICE_ACCOUNTS, KEY)
    assert (await account(wall_seconds())).token
    uid = (await cluster.client.get(SERVICE_ACCOUNTS, KEY)).metadata.uid
    await asyncio.sleep(REST)
    assert (await account(wall_seconds())).token
    assert (await cluster.client.get(SERVICE_ACCOUNTS, KEY)).metadata.uid == uid


async def test_token_is_renewed_at_three_quarters_of_lifetime(account: Account) -> None:
    now = wall_seconds()
    credential = await account(now)
    assert 0.7 * 3600 <= credential.renew_at - now <= 0.8 * 3600
    assert credential.expires == now + 3600


async def test_granted_lifetime_overrides_requested_one(network: FaultyNetwork, account: Account) -> None:
    granted = {"spec": {"expirationSeconds": 900}, "status": {"token": "t"}}
    network.intercept(
        lambda request: Response(201, {}, json.dumps(granted).encode()) if request.path == TOKEN else None
    )
    assert (await account(1000.0)).expires == 1900.0


@pytest.mark.parametrize("answer", [b"{}", b"nonsense", b'{"status":{"token":5}}'])
async def test_malformed_token_response_raises_config_error(
    network: FaultyNetwork, account: Account, answer: bytes
) -> None:
    network.intercept(lambda request: Response(201, {}, answer) if request.path == TOKEN else None)
    with pytest.raises(ConfigError, match="service account kube-system/greeter"):
        await account(wall_seconds())


@pytest.mark.parametrize("seconds", [-1, 0, 1])
async def test_expired_new_token_is_used_anyway(network: FaultyNetwork, account: Account, seconds: int) -> None:
    answer = json.dumps({"spec": {"expirationSeconds": seconds}, "status": {"token": "t"}}).encode()
    network.intercept(lambda request: Response(201, {}, answer) if request.path == TOKEN else None)
    assert (await Credentials(account).current()).token == "t"


async def test_new_token_is_not_replaced_at_once(account: Account) -> None:
    first = await account(wall_seconds())
    assert await account(wall_seconds()) == first
    await asyncio.sleep(REST)
    assert await account(wall_seconds()) != first


async def test_forbidden_token_requests_back_off(network: FaultyNetwork, account: Account) -> None:
    asked = 0

    def answer(request: Request) -> Response | None:
        nonlocal asked
        if request.path != TOKEN:
            return None
        asked += 1
        return Response(403, {}, Forbidden("not you").status().encode())

    network.intercept(answer)
    for _ in range(600):
        with pytest.raises(ConfigError, match=r"kube-system/greeter: .*not you"):
            await account(wall_seconds())
        await asyncio.sleep(1)
    assert 10 < asked < 25
    network.intercept(None)
    await asyncio.sleep(LONGEST_PAUSE)
    assert (await account(wall_seconds())).token


async def test_unreachable_server_raises_config_error(network: FaultyNetwork, account: Account) -> None:
    network.cut()
    with pytest.raises(ConfigError, match="the connection is cut"):
        await account(wall_seconds())


async def test_unavailable_server_delays_callers_until_deadline_only(network: FaultyNetwork, account: Account) -> None:
    credentials = Credentials(account)
    first = await credentials.current()
    busy = Response(503, {"retry-after": "50"}, ServiceUnavailable("busy").status().encode())
    network.intercept(lambda request: busy if request.path == TOKEN else None)
    await asyncio.sleep(0.9 * LIFE)
    began = wall_seconds()
    assert await credentials.current() == first
    assert wall_seconds() - began == DEADLINE


def test_token_backoff_doubles_to_one_minute() -> None:
    backoff = TokenBackoff()
    assert [backoff.failed(0.0, "", 1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.again_at == 60
