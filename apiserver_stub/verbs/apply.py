"""Server-side apply: create an object from a configuration, or change it to match (KEP-555)."""

from contextlib import suppress
from hashlib import blake2b

from apiserver_stub.encode.body import APPLY_YAML, JSON, DecodedBody, decode_document, media_type
from apiserver_stub.kinds.shared_parts import detached, may_share
from apiserver_stub.patch import server_side_apply as patch
from apiserver_stub.patch.conformance import check_typed, is_typed
from apiserver_stub.patch.managed_fields import APPLY, Versions, writable
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.verbs.create import creation
from apiserver_stub.verbs.decode import Warnings, check, named_object, note_patch
from apiserver_stub.verbs.field_management import field_manager_of, managed_fields_of, now, put_managed_fields
from apiserver_stub.verbs.mutation import Edited, Load, nothing
from apiserver_stub.verbs.preconditions import check_name, keep_uid, refuse_uid
from apiserver_stub.verbs.query import flag
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.unchanged_objects import Unchanged
from apiserver_stub.verbs.update import change
from apiserver_stub.verbs.write import write
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.tree import Tree


async def apply(scope: RequestScope, request: APIRequest) -> Reply:
    """Apply the configuration and return the resulting object, with 201 if it is new. A subresource cannot be created
    by apply.
    """
    sent = _Sent(scope, request)
    if sent.known is None:
        await scope.run_of(request)(sent.read)
    otherwise = None if request.subresource else creation(request, sent.create, nothing)
    outcome = await write(scope, request, change(scope, request, sent.edit, nothing, otherwise))
    sent.note_unchanged()
    return outcome.reply()


class _Sent:
    """The configuration that the caller sent. It is not decoded if `known` shows that it leaves the object
    unchanged.
    """

    def __init__(self, scope: RequestScope, request: APIRequest) -> None:
        self._scope = scope
        self._request = request
        self._application: Application | None = None
        self._unchanged: Unchanged | None = None
        found = None if request.kind.custom else scope.unchanged.find(request)
        self.known = found if found is not None and found.sent == _digest(request) else None

    def read(self) -> "Application":
        """Return the decoded configuration. Raises `BadRequest` and other errors of the decoder."""
        if self._application is None:
            self._application = _application(self._scope, self._request)
        return self._application

    def create(self, load: Load) -> Edited:
        """Return the configuration as a new object."""
        return self.read().create(load)

    def edit(self, load: Load) -> Edited:
        """Return an object with the configuration applied."""
        live = load.state
        revision = int(live["metadata"]["resourceVersion"])
        if self.known is not None and self.known.revision == revision:
            note_patch(self._request)
            tree = detached(load.shared(), live) if may_share(self._request.kind) else load()
            return Edited(tree, self.known.warnings, completed=True)
        edited = self.read().edit(load)
        is_unchanged = not self._request.kind.custom and edited.tree == live
        self._unchanged = Unchanged(revision, _digest(self._request), edited.warnings) if is_unchanged else None
        return edited

    def note_unchanged(self) -> None:
        """Record in the scope that the configuration left its object unchanged, if `edit` found this. Edits may run in
        the offload thread; call this on the event loop.
        """
        if self._unchanged is not None:
            self._scope.unchanged.note(self._request, self._unchanged)


def _digest(request: APIRequest) -> bytes:
    """Return a digest of the body and of all parameters that change what an apply does to its object."""
    http = request.http
    beside = field_manager_of(request).manager, media_type(http), sorted(request.query.items())
    return blake2b(ascii(beside).encode() + http.body, digest_size=16).digest()


def _application(scope: RequestScope, request: APIRequest) -> "Application":
    """Return the configuration in the body. Raises `BadRequest`."""
    kind = request.kind
    body = read_document(request, kind.api_version, kind.kind)
    return Application(scope, request, body.tree, check(request, body, kind.schema, kind.kind))


class Application:
    """A configuration of the request's kind. Its edits return objects with complete `managedFields`.

    If the object exists, fields that the request's resource cannot write are ignored. A new object gets them without an
    owner, and its strategy decides whether they stay.
    """

    def __init__(self, scope: RequestScope, request: APIRequest, config: Tree, warnings: Warnings) -> None:
        written = writable(config, request.kind.strategy, request.subresource_name)
        author, force = field_manager_of(request, APPLY), bool(flag(request.query, "force"))
        self._request = request
        self._applied = patch.ApplyRequest(written, request.kind, author, force)
        self._config = config
        self._versions = Versions(scope.kinds, request.kind, request.conversions)
        self._warnings = warnings

    def create(self, _load: Load) -> Edited:
        """Return the configuration as a new object."""
        check_name(self._request, self._applied.config["metadata"])
        tree, entries = patch.create(self._applied, self._config, now())
        refuse_uid(self._request, tree["metadata"])
        self._request.kind.strategy.forget(tree["metadata"])
        put_managed_fields(tree, entries)
        return Edited(tree, self._warnings)

    def edit(self, load: Load) -> Edited:
        """Return an object with the configuration applied."""
        live, kind = load.state, self._request.kind
        if kind.custom and not is_typed(live, kind.schema):
            check_typed(live, kind.schema, f"failed to create typed live object ({named_object(self._request)})")
        tree, entries = patch.change(self._applied, live, managed_fields_of(live), self._versions, now())
        check_name(self._request, tree["metadata"])
        keep_uid(self._request, tree["metadata"], live["metadata"])
        put_managed_fields(tree, entries)
        return Edited(tree, self._warnings, completed=True)


def read_document(request: APIRequest, api_version: str, kind: str) -> DecodedBody:
    """Return the configuration in the body; it always has metadata. Raises `BadRequest` if it is of another kind."""
    note_patch(request)
    body = _decode(request)
    tree = body.tree
    if (tree.get("apiVersion"), tree.get("kind")) != (api_version, kind):
        found = f"{tree.get('apiVersion') or '/'}, Kind={tree.get('kind') or ''}"
        raise BadRequest(f"invalid object type: {found}; expected {api_version}, Kind={kind}")
    metadata = tree.get("metadata")
    if metadata is None:
        metadata = tree["metadata"] = {}
    if not isinstance(metadata, dict):
        raise BadRequest("metadata of an applied configuration must be an object")
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    metadata.pop("managedFields", None)
    return body


def _decode(request: APIRequest) -> DecodedBody:
    """Return the document in the body. JSON sent as YAML is decoded as JSON, which is faster."""
    media, data = media_type(request.http), request.http.body
    if media == APPLY_YAML and data[:1] == b"{":
        with suppress(BadRequest):
            return decode_document(JSON, data)
    return decode_document(media, data)
