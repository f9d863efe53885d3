"""Creates and corrects objects of the cluster by requests to this server as its own user; and the cluster data they
contain.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from apiserver_stub.authn.certificate import SELF
from controller_manager.common.api.errors import AlreadyExists, Conflict, InternalError, NotFound, from_response
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now


class ServerAddress(msgspec.Struct, frozen=True):
    """The addresses of this server: the cluster IP of its service, its address and port, and the service IP ranges."""

    cluster_ip: str
    address: str
    port: int
    ranges: tuple[str, ...] = ()


class ClusterInfo(msgspec.Struct, frozen=True):
    """Cluster data: the address of the API server, its authentication data by the keys of the published ConfigMap, and
    the enabled features that have their own roles.
    """

    address: ServerAddress
    authentication: Mapping[str, str] = {}
    features: frozenset[str] = frozenset()


Handle = Callable[[Request], Awaitable[Response]]
Revise = Callable[[Tree], Tree | None]
"""A function that returns the new version of an existing object; None to leave it unchanged."""

MANAGER = "kube-apiserver"
"""The field manager of this server."""

_TRIES = 8  # to write what several servers write when they start


class Objects:
    """The objects of one server. Every method raises the `ApiError` of a failed request.

    `condition` is a status condition (type, status, reason, message) that the object must have. `remove_unreadable`
    removes the object of a path if the store cannot read it.
    """

    def __init__(self, handle: Handle, remove_unreadable: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._handle = handle
        self._remove_unreadable = remove_unreadable

    async def ensure(
        self, collection: str, wanted: Tree, born: Tree | None = None, *, condition: Tree | None = None
    ) -> None:
        """Create or correct an object to contain `wanted`. The fields of `born` are only set on creation."""

        def revise(found: Tree) -> Tree | None:
            corrected: Tree = _over(found, wanted)
            return None if corrected == found else corrected

        await self.ensure_revised(collection, _over(wanted, born or {}), revise, condition=condition)

    async def ensure_revised(
        self, collection: str, wanted: Tree, revise: Revise, *, manager: str = MANAGER, condition: Tree | None = None
    ) -> None:
        """Create `wanted` if no object has its name, otherwise write the result of `revise`. Retries if another server
        writes at the same time.
        """
        if self._remove_unreadable is not None:
            await self._remove_unreadable(f"{collection}/{wanted['metadata']['name']}")
        # An unreadable object (encrypted with a missing key) must not prevent the start.
        with suppress(InternalError):
            for tries_left in reversed(range(_TRIES)):
                try:
                    found = await self._revised(collection, wanted, revise, manager)
                    if condition is not None and (changed := _with_condition(found, condition)):
                        path = f"{collection}/{wanted['metadata']['name']}/status"
                        await self._send("PUT", path, changed, manager)
                    return
                except (AlreadyExists, Conflict):
                    if not tries_left:
                        raise

    async def _revised(self, collection: str, wanted: Tree, revise: Revise, manager: str) -> Tree:
        """Return the current object. Raises AlreadyExists or Conflict if another client has written it meanwhile."""
        path = f"{collection}/{wanted['metadata']['name']}"
        try:
            found = await self._send("GET", path)
        except NotFound:
            return await self._send("POST", collection, wanted, manager)
        revised = revise(found)
        return found if revised is None else await self._send("PUT", path, revised, manager)

    async def ensure_created(self, collection: str, wanted: Tree) -> None:
        """Create `wanted`, which is probably new; an existing object is not changed."""
        with suppress(AlreadyExists):
            await self._send("POST", collection, wanted, MANAGER)

    async def revise(self, path: str, uid: str, revise: Revise, *, subresource: str = "") -> None:
        """Write the result of `revise` for the object with `uid` (empty: any), as a whole or through a subresource.
        Nothing is written if the object was deleted or changed meanwhile: the caller watches it and is called again.
        """
        with suppress(NotFound, Conflict):
            found = await self._send("GET", path)
            if uid in ("", found["metadata"]["uid"]) and (revised := revise(found)) is not None:
                await self._send("PUT", path + (subresource and f"/{subresource}"), revised, MANAGER)

    async def label(self, path: str, uid: str, name: str, value: str) -> None:
        """Set a label of the object `uid`, like `revise`."""

        def labelled(found: Tree) -> Tree:
            labels = {**(found["metadata"].get("labels") or {}), name: value}
            return {**found, "metadata": {**found["metadata"], "labels": labels}}

        await self.revise(path, uid, labelled)

    async def apply_status(self, path: str, wanted: Tree, manager: str) -> None:
        """Apply the status of an object with force, as a field manager; nothing happens if it does not exist."""
        with suppress(NotFound):
            await self._send("PATCH", f"{path}/status", wanted, manager)

    async def remove(self, path: str, uid: str = "", resource_version: str = "") -> None:
        """Delete an object if it exists and has the given `uid` and `resource_version`."""
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in given.items() if value}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions} if uid else None
        with suppress(NotFound, Conflict):
            await self._send("DELETE", path, options)

    async def _send(self, method: str, path: str, body: Tree | None = None, manager: str = "") -> Tree:
        data = b"" if body is None else msgspec.json.encode(body)
        media_type = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        headers = {"content-type": media_type, "accept": "application/json"}
        query = (("fieldManager", manager),) if manager else ()
        if method == "PATCH":
            query = (*query, ("force", "true"))
        answer = await self._handle(Request(method, path, query, headers, data, SELF))
        assert isinstance(answer.body, bytes)
        if answer.status >= 400:
            raise from_response(answer.status, answer.body)
        found: Tree = msgspec.json.decode(answer.body)
        return found


def _with_condition(found: Tree, condition: Tree) -> Tree | None:
    """Return `found` with the condition in its status; None if it already has it."""
    status = found.get("status") or {}
    conditions = status.get("conditions") or []
    if any(condition.items() <= each.items() for each in conditions):
        return None
    others = [each for each in conditions if each.get("type") != condition["type"]]
    current = {**condition, "lastTransitionTime": format_time(utc_now())}
    return found | {"status": {**status, "conditions": [*others, current]}}


def _over(found: Any, wanted: Any) -> Any:
    """Merge `wanted` into `found`; lists are replaced."""
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return wanted
    return found | {name: _over(found.get(name), value) for name, value in wanted.items()}
