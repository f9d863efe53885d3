"""Questions to the API server about callers: what is asked, and how long answers are remembered."""

import asyncio
import json

import pytest

from controller_manager.api.errors import ServiceUnavailable
from controller_manager.api.wire import Request, Response
from controller_manager.app.delegated import Delegated, Lifetimes, Remembered
from controller_manager.client import Client, InProcessTransport, TransportError
from controller_manager.serving import Identity

pytestmark = pytest.mark.virtual


class Server:
    """Accepts the token `good`, which belongs to alice, who may see /metrics."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.down = False

    async def handle(self, request: Request) -> Response:
        if self.down:
            raise TransportError("no route")
        asked = json.loads(request.body)
        self.asked.append(asked)
        spec = asked["spec"]
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            good = spec["token"] == "good"
            user = {"username": "alice", "groups": ["team"]}
            asked["status"] = {"authenticated": True, "user": user} if good else {"error": "expired"}
        elif request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
            allowed = spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
            asked["status"] = {"allowed": allowed and spec["user"] == "alice" and spec["groups"] == ["team"]}
        else:
            return Response(404)
        return Response(201, {"content-type": "application/json"}, json.dumps(asked).encode())


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def delegated(server) -> Delegated:
    return Delegated(Client(InProcessTransport(server.handle)), Lifetimes(tokens=10, allowed=20, refused=5))


ALICE = Identity("alice", ("team",))


async def test_a_token_is_asked_about_once_in_its_time(server, delegated):
    assert await delegated.authenticate("good") == ALICE
    assert await delegated.authenticate("bad") is None
    await asyncio.sleep(9)
    assert await delegated.authenticate("good") == ALICE
    assert await delegated.authenticate("bad") is None
    assert len(server.asked) == 2
    await asyncio.sleep(2)
    assert await delegated.authenticate("good") == ALICE
    assert len(server.asked) == 3


async def test_decisions_are_remembered_by_their_kind(server, delegated):
    assert await delegated.authorize(ALICE, "get", "/metrics")
    assert not await delegated.authorize(ALICE, "post", "/metrics")
    await asyncio.sleep(6)
    assert await delegated.authorize(ALICE, "get", "/metrics")
    assert len(server.asked) == 2
    assert not await delegated.authorize(ALICE, "post", "/metrics")
    assert len(server.asked) == 3
    await asyncio.sleep(15)
    assert await delegated.authorize(ALICE, "get", "/metrics")
    assert len(server.asked) == 4


async def test_without_the_api_server_nobody_is_judged(server, delegated):
    assert await delegated.authenticate("good") == ALICE
    server.down = True
    assert await delegated.authenticate("good") == ALICE
    with pytest.raises(ServiceUnavailable):
        await delegated.authenticate("other")
    with pytest.raises(ServiceUnavailable):
        await delegated.authorize(ALICE, "get", "/metrics")


async def test_of_too_many_answers_the_oldest_goes():
    answers: Remembered[str, int] = Remembered(2)
    for number, name in enumerate("abc"):
        answers.keep(name, number, until=10)
    assert [answers.find(name, 0) for name in "abc"] == [None, (1,), (2,)]
    assert answers.find("c", 10) is None
