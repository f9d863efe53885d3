"""The typed client: one method per verb, each for a `Resource`. It does not depend on the transport."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.api.diff import overlay
from controller_manager.common.api.model import Object, PartialObject
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.api.wire import Upgrade, push_bookmarks
from controller_manager.common.base.worker_thread import WorkerThread
from controller_manager.common.transport.transport import Transport, TransportError, close_body, whole_body
from controller_manager.framework.client.codec import (
    Codec,
    Lines,
    Listing,
    Pieces,
    Span,
    Unreadable,
    UnreadableAnswer,
    WatchEvent,
    WriteResult,
    codec_of,
    deletion,
)
from controller_manager.framework.client.requests import JSON, ClientMetrics, RequestEncoder, Throttle
from controller_manager.framework.client.rest_client import NOT_MODIFIED, Call, QueryPairs, RESTClient

T = TypeVar("T", bound=Object)
OnWrite = Callable[[WriteResult], None]
# Returns the known resourceVersion of an object before a write; empty if it is not known.
KnownVersion = Callable[[Resource[Any], Key], str]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = "cluster-controller-manager"

_DECODED_AT_ONCE = 500
_DRY_RUN = ("dryRun", "All")


class Client:
    """A client of one API server. `transport` sends its requests; `bodies` encodes objects, by default as JSON.

    `on_write` is called with the result of each write, except of `delete_collection`, of dry runs, and of writes that
    do not change the `known_version` of the object.

    `dry_run` makes the server do everything except store the result. `field_validation` is the handling of unknown and
    duplicate fields: `Strict` rejects them, `Warn` (the server's default) and `Ignore` drop them; apply always rejects.

    Large objects are encoded and decoded in the thread `worker`.

    Every method raises the `ApiError` of the response, or `TransportError` if there is no response. Responses with
    `Retry-After` (429 and 5xx) are retried, up to ten attempts.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        throttle: Throttle | None = None,
        metrics: ClientMetrics | None = None,
        user_agent: str = USER_AGENT,
        on_write: OnWrite | None = None,
        known_version: KnownVersion | None = None,
        bodies: RequestEncoder | None = None,
        worker: WorkerThread | None = None,
    ) -> None:
        self._rest = RESTClient(transport, throttle or Throttle(0, 0), metrics or ClientMetrics(None), user_agent)
        self._on_write = on_write
        self._known_version = known_version
        self._bodies = bodies or RequestEncoder()
        self._worker = worker or WorkerThread()

    def derive(
        self,
        *,
        user_agent: str = "",
        throttle: Throttle | None = None,
        on_write: OnWrite | None = None,
        known_version: KnownVersion | None = None,
    ) -> "Client":
        """Return a client with the same transport and metrics, but its own callbacks, user agent and throttle."""
        rest = self._rest
        return Client(
            rest.transport,
            throttle=throttle or rest.throttle,
            metrics=rest.metrics,
            user_agent=user_agent or rest.user_agent,
            on_write=on_write,
            known_version=known_version,
            bodies=self._bodies,
            worker=self._worker,
        )

    @property
    def worker(self) -> WorkerThread:
        """The thread for long computations, shared by all clients of a process."""
        return self._worker

    @property
    def authorities(self) -> bytes:
        """The certificate authorities (PEM) that the server is verified with.

        Empty for those of the system, or if the server has no certificate.
        """
        return self._rest.transport.authorities

    async def close(self) -> None:
        """Close the transport."""
        await self._rest.transport.close()

    async def get(self, resource: Resource[T], key: Key, *, resource_version: str = "", subresource: str = "") -> T:
        """Return an object; with a `resource_version`, a state that is at least as new."""
        codec: Codec[T] = codec_of(resource)
        query = _query(resourceVersion=resource_version)
        call = Call("GET", _path(resource, key, subresource), query, accept=codec.accept)
        return await self._one(codec, await self._rest.answer(call))

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        match: str = "",
        shard: str = "",
    ) -> Listing[T]:
        """Return one page of a collection, or all of it without `limit`; `match` is `resourceVersionMatch`.

        A server that does not support shards (KEP-5866) ignores `shard` and returns the whole collection.
        """
        codec = codec_of(resource)
        query = _query(
            **_selection(labels, fields, shard),
            limit=limit,
            **{"continue": continue_token},
            resourceVersion=resource_version,
            resourceVersionMatch=match,
        )
        return await self._listing(
            codec, await self._rest.answer(Call("GET", resource.path(namespace), query, accept=codec.accept_list))
        )

    async def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        timeout: float = 0.0,
        opened: Callable[[], None] | None = None,
        bookmarked: Callable[[str], None] | None = None,
        shard: str = "",
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the changes of a collection after `resource_version`. Close the generator to end the watch early.

        `opened` is called when the server has accepted the watch, which may be long before the first event.
        `bookmarked` may be called with the revision of a bookmark, which is then not yielded. Raises the `ApiError` of
        an ERROR event (`Expired` if the version is too old), and `TransportError` if the connection breaks. Incomplete
        events are never yielded.
        """
        codec = codec_of(resource)
        query = _query(
            watch="true",
            **_selection(labels, fields, shard),
            resourceVersion=resource_version,
            allowWatchBookmarks=bookmarks,
            sendInitialEvents=send_initial_events,
            resourceVersionMatch="NotOlderThan" if send_initial_events else "",
            timeoutSeconds=int(timeout),
        )
        response = await self._rest.send(Call("GET", resource.path(namespace), query, accept=codec.accept))
        lines = Lines()
        pushed: list[bytes] = []  # a chunk that the reader must use instead of the empty chunk that it gets

        def take(chunk: bytes) -> bool:
            revision = "" if lines.unfinished else codec.bookmark(chunk)
            if bookmarked is None or not revision:
                pushed.append(chunk)
                return False
            bookmarked(revision)
            return True

        try:
            if isinstance(response.body, bytes | Upgrade):
                raise TransportError(f"the server answered a watch of {resource.name} with a single document")
            if opened is not None:
                opened()
            if bookmarked is not None:
                push_bookmarks(response.body, take)
            async for chunk in response.body:
                for line in lines.feed(pushed.pop() if pushed else chunk):
                    yield await self._worker.run_if_large(len(line), partial(codec.event, line))
        finally:
            await close_body(response)
        if lines.unfinished:
            raise TransportError(f"the watch of {resource.name} ended in the middle of an event")

    async def create(self, resource: Resource[T], obj: T, *, dry_run: bool = False, field_validation: str = "") -> T:
        """Create `obj`. It needs a name or `generate_name`."""
        if resource.namespaced and not obj.metadata.namespace:
            raise errors.BadRequest(f"a {resource.kind} needs a namespace")
        query = _options(dry_run, field_validation)
        path = resource.path(obj.metadata.namespace)
        return await self._submit(resource, Call("POST", path, query, await self._body(resource, obj)), "")

    async def update(
        self,
        resource: Resource[T],
        obj: T,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Replace an object or its subresource. Fields that the model does not know are sent back unchanged."""
        key, query = key_of(obj), _options(dry_run, field_validation)
        before = obj.metadata.resource_version or self._version_of(resource, key)
        call = Call("PUT", _path(resource, key, subresource), query, await self._body(resource, obj))
        return await self._submit(resource, call, before)

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        body: bytes | Mapping[str, Any] | Sequence[Any],
        content_type: str = MERGE_PATCH,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Apply a patch of the given media type to an object."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        query = _options(dry_run, field_validation)
        call = Call("PATCH", _path(resource, key, subresource), query, data, content_type)
        return await self._write(resource, call, self._version_of(resource, key))

    async def apply(
        self,
        resource: Resource[T],
        key: Key,
        fields: Mapping[str, Any],
        manager: str,
        *,
        uid: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Apply `fields` to an object as `manager` (server-side apply, KEP-555); take over fields of other managers.

        `fields` may have `metadata` with labels, annotations and others. Creates the object if it does not exist,
        unless a `uid` is given (409 if no object has it). Raises `BadRequest` if `fields` name another object than
        `key`.
        """
        tree = _configuration(resource, key, fields, uid)
        query = (("fieldManager", manager), ("force", "true"), *_options(dry_run, field_validation))
        path = _path(resource, key, subresource)
        call = Call("PATCH", path, query, msgspec.json.encode(tree), APPLY_PATCH)
        return await self._write(resource, call, self._version_of(resource, key))

    async def delete(
        self,
        resource: Resource[Any],
        key: Key,
        *,
        grace: int | None = None,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete an object. `uid` and `resource_version` are preconditions (409 if not met)."""
        options = _delete_options(grace, propagation, uid, resource_version)
        body = await self._rest.answer(Call("DELETE", _path(resource, key), _options(dry_run), options))
        if not dry_run:
            self._note(deletion(resource, key, body))

    async def delete_collection(
        self,
        resource: Resource[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        grace: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete all selected objects of a collection."""
        options = _delete_options(grace, propagation, "", "")
        query = (*_query(**_selection(labels, fields)), *_options(dry_run))
        await self._rest.answer(Call("DELETE", resource.path(namespace), query, options))

    async def raw(self, call: Call) -> bytes:
        """Return the body of the response to any request, for non-resource paths: discovery, health, version."""
        return await self._rest.answer(call)

    async def raw_unless_known(self, call: Call) -> tuple[bytes | None, str]:
        """Return the body and the entity tag of a response; the body is None if it still matches `call.etag`."""
        response = await self._rest.send(call)
        body = await whole_body(response)
        return None if response.status == NOT_MODIFIED else body, response.headers.get("etag", "")

    async def _submit(self, resource: Resource[T], call: Call, before: str) -> T:
        """Send an object, given as JSON in `call`, in the encoder's media type, or as JSON if the server rejects it."""
        body, content_type = self._bodies.make(resource, call.body)
        plain = content_type == JSON
        sent = call if plain else msgspec.structs.replace(call, body=body, content_type=content_type)
        try:
            return await self._write(resource, sent, before)
        except errors.UnsupportedMediaType:
            if plain:
                raise
        self._bodies.refused(resource)
        return await self._write(resource, call, before)

    async def _write(self, resource: Resource[T], call: Call, before: str) -> T:
        """Send a write of an object that had the version `before` (empty if unknown)."""
        written: T = await self._one(codec_of(resource), await self._rest.answer(call))
        version = written.metadata.resource_version
        if version != before and _DRY_RUN not in call.query:
            self._note(WriteResult(resource, key_of(written), version))
        return written

    def _version_of(self, resource: Resource[Any], key: Key) -> str:
        return self._known_version(resource, key) if self._known_version is not None else ""

    def _note(self, write: WriteResult) -> None:
        if self._on_write is not None and (write.version or write.gone):
            self._on_write(write)

    async def _one(self, codec: Codec[T], body: bytes) -> T:
        return await self._worker.run_if_large(len(body), partial(codec.one, body))

    async def _body(self, resource: Resource[T], obj: T) -> bytes:
        return await self._worker.run_if_large(len(obj.raw), partial(_body, resource, obj))

    async def _listing(self, codec: Codec[T], body: bytes) -> Listing[T]:
        guessed = codec.guess(body)
        if guessed is not None:
            try:
                return await self._decoded(codec, guessed)
            except UnreadableAnswer:
                pass  # a wrong guess, or a malformed response: parse it
        return await self._decoded(codec, codec.parse(body), sift=True)

    async def _decoded(self, codec: Codec[T], pieces: Pieces, *, sift: bool = False) -> Listing[T]:
        """Decode the objects in steps, so that other tasks can run. Without `sift`, an undecodable one is an error."""
        meta, body, spans = pieces
        items: list[T] = []
        unreadable: list[Unreadable] = []
        for start in range(0, len(spans), _DECODED_AT_ONCE):
            some = spans[start : start + _DECODED_AT_ONCE]
            step = partial(codec.sift, body, some) if sift else partial(_all_of, codec, body, some)
            largest = max((stop - begin for begin, stop in some), default=0)
            found, lost = await self._worker.run_if_large(largest, step)
            items += found
            unreadable += lost
            await asyncio.sleep(0)
        return Listing(items, meta.resource_version, meta.continue_, meta.remaining_item_count, unreadable)


def _all_of(codec: Codec[T], body: bytes, spans: Sequence[Span]) -> tuple[list[T], list[Unreadable]]:
    return codec.items(body, spans), []


def _path(resource: Resource[Any], key: Key, subresource: str = "") -> str:
    if not key.name:
        raise errors.InvalidName(f"the request for a {resource.kind} has no name")
    if resource.namespaced and not key.namespace:
        raise errors.InvalidName(f"the {resource.kind} {key.name[:256]!r} needs a namespace")
    return resource.path(key.namespace, key.name, subresource)


def _query(**parameters: str | int | bool) -> QueryPairs:
    """Return the parameters that are not empty."""
    return tuple((name, "true" if value is True else str(value)) for name, value in parameters.items() if value)


def _options(dry_run: bool, field_validation: str = "") -> QueryPairs:
    """Return the query parameters of a write."""
    validation = (("fieldValidation", field_validation),) if field_validation else ()
    return (_DRY_RUN, *validation) if dry_run else validation


def _configuration(resource: Resource[Any], key: Key, fields: Mapping[str, Any], uid: str) -> Mapping[str, Any]:
    """Return the applied configuration: `fields` with type and key. Raises `BadRequest` if they contradict these."""
    given = msgspec.to_builtins(fields.get("metadata") or {})
    ours = {"name": key.name, "namespace": key.namespace, **({"uid": uid} if uid else {})}
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    wanted = {**kind, **{f"metadata.{name}": value for name, value in ours.items()}}
    found = {**fields, **{f"metadata.{name}": value for name, value in given.items()}}
    for path, value in wanted.items():
        if found.get(path, value) != value:
            raise errors.BadRequest(f"{path} of the applied fields is {found[path]!r}, of the object {value!r}")
    named = {name: value for name, value in ours.items() if value}
    return {**fields, **kind, "metadata": {**given, **named}}


def _selection(labels: str, fields: str, shard: str = "") -> dict[str, str]:
    return {"labelSelector": labels, "fieldSelector": fields, "shardSelector": shard}


def _body(resource: Resource[T], obj: T) -> bytes:
    if isinstance(obj, PartialObject):
        raise TypeError(f"{resource.kind} {key_of(obj)} was read as metadata only and can't be written; patch it")
    full = msgspec.structs.replace(obj, api_version=resource.api_version, kind=resource.kind)
    if not obj.raw:
        return full.encode()
    return overlay(obj.raw, type(obj).decode(obj.raw, keep=False), full)


def _delete_options(grace: int | None, propagation: str, uid: str, resource_version: str) -> bytes:
    wanted = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in wanted.items() if value}
    options: dict[str, Any] = {"propagationPolicy": propagation} if propagation else {}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if preconditions:
        options["preconditions"] = preconditions
    return msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", **options}) if options else b""
