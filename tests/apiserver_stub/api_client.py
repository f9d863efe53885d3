"""The client of tests that call an API server in this process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True)
class Answer:
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def names(self) -> list[str]:
        """The names of the items of a list."""
        return [item["metadata"]["name"] for item in self.tree["items"]]

    @property
    def version(self) -> str:
        """The resource version of the object or list."""
        found: str = self.tree["metadata"]["resourceVersion"]
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a watch that has ended."""
        return list(map(json.loads, self.body.splitlines()))


class ApiClient:
    """Sends requests to a server as one user, without a connection.

    A body that is not bytes is sent as JSON; underscores in the names of headers become hyphens.
    """

    def __init__(self, server: ApiServer, user: Certificate = ADMIN) -> None:
        self.server = server
        self._user = user

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        """Return the response with its body unread."""
        return await self.server.handle(request_of(method, url, body, headers, self._user))

    async def ask(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """Return the whole response; a watch must end by itself."""
        return await answer_of(await self.send(method, url, body, **headers))

    async def get(self, url: str, **headers: str) -> Answer:
        return await self.ask("GET", url, **headers)

    async def post(self, url: str, body: Any, **headers: str) -> Answer:
        return await self.ask("POST", url, body, **headers)

    async def put(self, url: str, body: Any, **headers: str) -> Answer:
        return await self.ask("PUT", url, body, **headers)

    async def patch(self, url: str, body: Any, form: str = "merge-patch+json", **headers: str) -> Answer:
        return await self.ask("PATCH", url, body, content_type=f"application/{form}", **headers)

    async def delete(self, url: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("DELETE", url, body, **headers)

    async def config(
        self, name: str, namespace: str = "default", *, data: Mapping[str, str] | None = None, **metadata: Any
    ) -> Answer:
        """Create a small ConfigMap; its label `of` and its key `k` contain the name, unless others are given."""
        tree = {"metadata": {"name": name, "labels": {"of": name}, **metadata}, "data": data or {"k": name}}
        made = await self.post(f"/api/v1/namespaces/{namespace}/configmaps", tree)
        assert made.status == 201, made.body
        return made

    async def watch(self, query: str = "", url: str = CONFIGS) -> list[dict[str, Any]]:
        """Return the events of a watch that ends by itself."""
        return (await self.get(f"{url}?watch=1&{query}")).events


async def answer_of(response: Response) -> Answer:
    """Read the body of a response."""
    body = response.body
    return Answer(
        response.status,
        response.headers,
        body if isinstance(body, bytes) else b"".join([chunk async for chunk in body]),
    )


def encoded(body: Any) -> bytes:
    """Return the bytes of a body: JSON unless it is bytes or None."""
    return body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()


def types_and_names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the type of each event and the name of its object, empty for bookmarks."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def request_of(
    method: str, url: str, body: Any, headers: Mapping[str, str], user: Certificate | None = None
) -> Request:
    """Return the request of a user."""
    path, _, query = url.partition("?")
    pairs = tuple((name, value) for name, _, value in (pair.partition("=") for pair in query.split("&") if pair))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, path, pairs, named, encoded(body), user)
