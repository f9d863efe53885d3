"""The virtual resource `componentstatuses`: each read probes the components of the control plane."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping

from apiserver_stub.encode.json import encode
from apiserver_stub.request.api_request import APIRequest, Handler, Item, Items, Reply
from apiserver_stub.verbs.preconditions import object_not_found
from apiserver_stub.verbs.selection import select
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import MethodNotAllowed
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.tasks import all_of

_SECONDS = 5.0
_LARGEST_LINE = 1024


async def probe(port: int, path: str = "/readyz") -> str:
    """GET `path` over HTTPS on loopback. Return an empty string on status 200, else the reason for the failure.

    The certificate is not verified because the request contains no secrets.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            return await _ask(port, path)
    except TimeoutError:
        return f"https://127.0.0.1:{port}{path} did not answer within {_SECONDS:.0f} seconds"
    except (OSError, ValueError) as error:
        return f"https://127.0.0.1:{port}{path} cannot be reached: {error}"


async def _ask(port: int, path: str) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=_LARGEST_LINE)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        line = (await reader.readline()).decode("latin-1").strip()
    finally:
        writer.close()
    return "" if " 200 " in f"{line} " else f"https://127.0.0.1:{port}{path} answered {line or 'nothing'}"


Ask = Callable[[], Awaitable[str]]
"""Probes a component. Returns an empty string if the component is healthy, else the reason."""

_PLURAL = "componentstatuses"


class ComponentStatuses:
    """Handles requests for component statuses."""

    def __init__(self, components: Mapping[str, Ask]) -> None:
        self._components = components

    def answers(self) -> Mapping[tuple[str, str], Handler]:
        """Return the request handlers by (group, plural)."""
        return {("", _PLURAL): self.answer}

    async def answer(self, request: APIRequest) -> Reply:
        """Return how one component is or, for a list, each that the selectors choose."""
        if request.verb == "get":
            if request.name not in self._components:
                raise object_not_found(request)
            return Reply(Item((await self._row(request.name)).data))
        if request.verb != "list":
            raise MethodNotAllowed("component statuses can only be read")
        chosen = select(request)
        rows = [row for row in await all_of(*map(self._row, self._components)) if chosen.has(row)]
        return Reply(Items("", [row.data for row in rows], rows))

    async def _row(self, name: str) -> Row:
        return Row(_PLURAL, name, 0, encode(status_of(name, await self._components[name]())))


def status_of(name: str, problem: str) -> Tree:
    """Return the ComponentStatus of a component. An empty `problem` means healthy."""
    condition = {"type": "Healthy", "status": "False" if problem else "True", "message": problem or "ok"}
    return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}
