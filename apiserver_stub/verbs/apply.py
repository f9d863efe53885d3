"""Server-side apply: an object created from a configuration, or changed as it says (KEP-555)."""

from contextlib import suppress
from functools import partial

from apiserver_stub.call import APIRequest, Reply, Tree
from apiserver_stub.encode.body import APPLY_YAML, JSON, Body, decode_document, media_type
from apiserver_stub.kinds.trees import put_in
from apiserver_stub.patch import apply as patch
from apiserver_stub.patch.managed_fields import APPLY, Entries
from apiserver_stub.patch.versions import Versions
from apiserver_stub.verbs.create import insert
from apiserver_stub.verbs.decode import Warnings, check
from apiserver_stub.verbs.field_management import field_manager_of, managed_fields_of, now, put_managed_fields, writable
from apiserver_stub.verbs.guaranteed_update import Fresh
from apiserver_stub.verbs.query import flag
from apiserver_stub.verbs.revise import revise
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import key_of, stale
from apiserver_stub.verbs.update import check_name, keep_uid, refuse_uid
from controller_manager.api.errors import AlreadyExists, BadRequest, NotFound


async def apply(scope: RequestScope, call: APIRequest) -> Reply:
    """The object as it is now, with 201 if it is new. A subresource is never made by applying it."""
    kind, part, run = call.kind, call.part, scope.run_of(call.http)
    claim = await run(partial(_claim, scope, call))
    key = key_of(kind, call.namespace, call.name)
    for _ in range(scope.limits.attempts):
        if part or scope.store.get(kind.storage, key) is not None:
            try:
                return await revise(scope, call, claim.edit, manage_fields=claim.manage_fields)
            except NotFound:
                if part or scope.store.get(kind.storage, key) is not None:
                    raise
        else:
            with suppress(AlreadyExists):  # somebody was faster: it is changed instead
                tree = await run(claim.new)
                return await insert(scope, call, tree, claim.warnings, claim.entries)
    raise stale(call)


def _claim(scope: RequestScope, call: APIRequest) -> "Application":
    kind = call.kind
    body = read_document(call, kind.api_version, kind.kind)
    warnings = check(call, body, kind.schema, kind.kind)
    return Application(scope, call, writable(body.tree, kind.strategy, call.part), warnings)


class Application:
    """A configuration of the kind of a call on its way into the store; afterwards `entries` is the record of owners."""

    def __init__(self, scope: RequestScope, call: APIRequest, config: Tree, warnings: Warnings) -> None:
        self._call = call
        self._claim = patch.ApplyRequest(
            config, call.kind, field_manager_of(call, APPLY), bool(flag(call.query, "force"))
        )
        self._versions = Versions(scope.kinds, call.kind)
        self.warnings = warnings
        self.entries: Entries = []

    def new(self) -> Tree:
        """The object to create."""
        metadata = self._claim.config["metadata"]
        check_name(self._call, metadata)
        refuse_uid(self._call, metadata)
        tree, self.entries = patch.create(self._claim, now())
        return tree

    def edit(self, fresh: Fresh) -> tuple[Tree, Warnings]:
        """The object changed, for `revise`."""
        live = fresh()
        tree, self.entries = patch.change(self._claim, live, managed_fields_of(live), self._versions, now())
        check_name(self._call, tree["metadata"])
        keep_uid(self._call, tree["metadata"], live["metadata"])
        return tree, self.warnings

    def manage_fields(self, new: Tree, old: Tree) -> None:
        """Record who owns what, for `revise`."""
        put_managed_fields(new, self.entries)


def read_document(call: APIRequest, api_version: str, kind: str) -> Body:
    """The configuration in the body, always with metadata. Raises `BadRequest` for one of something else."""
    body = _decode(call)
    tree = body.tree
    if (tree.get("apiVersion"), tree.get("kind")) != (api_version, kind):
        found = f"{tree.get('apiVersion') or '/'}, Kind={tree.get('kind') or ''}"
        raise BadRequest(f"invalid object type: {found}; expected {api_version}, Kind={kind}")
    metadata = tree.get("metadata")
    if metadata is None:
        metadata = tree["metadata"] = {}
    if not isinstance(metadata, dict):
        raise BadRequest("the metadata of an applied configuration is an object")
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    put_in(tree, ("metadata", "managedFields"), None)
    return body


def _decode(call: APIRequest) -> Body:
    """The document in the body; most clients send JSON, which is read faster as such."""
    media, data = media_type(call.http), call.http.body
    if media == APPLY_YAML and data[:1] == b"{":
        with suppress(BadRequest):
            return decode_document(JSON, data)
    return decode_document(media, data)
