"""Log lines of requests, without secrets."""

import io
import re

import pytest

from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import Levels, Streams, configure
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.client.rest_client import Call

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("own_logs")]

QUERY = (("labelSelector", "a=b c"), ("token", "s3cret"))


async def logged_responses(levels: Levels, *answers: Response | TransportError) -> list[str]:
    """Return the log lines of requests with these responses, without parts that differ between runs."""
    out = io.StringIO()
    configure(levels=levels, streams=Streams(out))
    waiting = list(answers)

    async def handle(_: Request) -> Response:
        answer = waiting.pop(0)
        if isinstance(answer, TransportError):
            raise answer
        return answer

    client = Client(InProcessTransport(handle, token="s3cret"))
    for _ in answers:
        try:
            await client.raw(Call("POST", "/api/v1/pods", QUERY, b'{"s3cret": 1}'))
        except (ApiError, TransportError):
            continue
    return re.findall(r"\w+\.py:\d+\] (.*)", out.getvalue())


@pytest.mark.parametrize("levels", [Levels(6), Levels(0, (("requests", 6),))])
async def test_response_log_has_status_and_time_but_no_secrets(levels: Levels) -> None:
    url = "/api/v1/pods?labelSelector=a%3Db%20c&token=<masked>"
    answers = Response(201, {}, b"s3cret"), Response(404, {}, b"s3cret"), Response(299, {}, b""), TransportError("gone")
    assert await logged_responses(levels, *answers) == [
        f'"Response" logger="client" verb="POST" url="{url}" status="{status}" milliseconds=0'
        for status in ("201 Created", "404 Not Found", "299", "")
    ]


async def test_below_level_6_no_response_is_logged() -> None:
    assert await logged_responses(Levels(5), Response(200, {}, b"")) == []
