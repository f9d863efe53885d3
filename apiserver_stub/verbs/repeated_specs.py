"""Specs that came before in bodies of creates: a controller makes many objects of one template. What becomes of a spec
(how it fits its schema, its defaults, the fields that its creator owns) follows from its bytes alone, and is done once.
"""

import msgspec
import orjson

from apiserver_stub.api_request import APIRequest, Tree
from apiserver_stub.encode.body import JSON, DecodedBody, media_type
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.defaults import fill_beside_spec
from apiserver_stub.kinds.findings import LONGEST, Findings
from apiserver_stub.patch.field_set import Fields
from apiserver_stub.patch.managed_fields import fields_of
from apiserver_stub.verbs.decode import Warnings, fit, note_object, read_object

_MOST_CONTAINERS = 100  # in the metadata
_STEP = "f:spec"


class RepeatedSpec:
    """A spec that has come `times` often. Once that is more than once, `completed` is what it is with its defaults, in
    JSON, and `fields` are those that its creator owns of it.
    """

    __slots__ = ("completed", "fields", "times")

    def __init__(self) -> None:
        self.times = 0
        self.completed = b""
        self.fields: Fields | None = None

    def note(self, tree: Tree) -> None:
        """Note what has become of the spec in a complete object whose fields its creator owns. The first time nothing
        is: most specs of bodies that people write never come again.
        """
        self.times += 1
        entries = tree["metadata"].get("managedFields")
        if self.times > 1 and entries:
            self.fields = fields_of(entries[0]).get(_STEP)
            self.completed = encode(tree["spec"])

    def owned(self, beside: Fields) -> Fields:
        """Return the fields of an object with this spec, in order, of those `beside` it."""
        if self.fields is None:
            return beside
        found = {**beside, _STEP: self.fields}
        return {step: found[step] for step in sorted(found)}


class NewObject(msgspec.Struct, frozen=True):
    """The object in the body of a create, `completed` by its defaults if its spec was known. That is `repeated` if it
    can be told apart from the rest.
    """

    tree: Tree
    warnings: Warnings
    repeated: RepeatedSpec | None = None
    completed: bool = False


class _Parts(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False, frozen=True):
    metadata: msgspec.Raw
    spec: msgspec.Raw
    kind: str = ""
    api_version: str = ""


_PARTS = msgspec.json.Decoder(_Parts)


_REPEATED = Findings(RepeatedSpec, most=256)


def read_new_object(request: APIRequest) -> NewObject:
    """Return the object in the body of a create as `read_object` does, which also says what raises what."""
    body = request.http.body
    if "spec" not in (request.kind.part_defaults or ()) or len(body) > LONGEST or media_type(request.http) != JSON:
        return NewObject(*read_object(request))
    try:
        parts = _PARTS.decode(body)
    except msgspec.DecodeError:
        return NewObject(*read_object(request))
    repeated = _REPEATED.of(bytes(parts.spec), request.kind.schema)
    if repeated.completed:
        tree = _beside_spec(request, parts)
        if tree is not None:
            return _completed(request, tree, repeated)
    tree, warnings = read_object(request)
    return NewObject(tree, warnings, None if warnings or repeated.completed else repeated)


def _beside_spec(request: APIRequest, parts: _Parts) -> Tree | None:
    """Return the object with nothing in its spec; None if there is something about it that has to be looked at."""
    kind, metadata = request.kind, bytes(parts.metadata)
    if parts.kind not in ("", kind.kind) or parts.api_version not in ("", kind.api_version) or b"\\" in metadata:
        return None
    if metadata.count(b"{") + metadata.count(b"[") > _MOST_CONTAINERS:
        return None
    try:
        found = orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return None
    keys = 2 + bool(parts.kind) + bool(parts.api_version)
    colons = request.http.body.count(b":") - bytes(parts.spec).count(b":") - keys
    if type(found) is not dict or orjson.dumps(found).count(b":") != colons:  # a key may have come twice
        return None
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": found, "spec": {}}


def _completed(request: APIRequest, tree: Tree, repeated: RepeatedSpec) -> NewObject:
    kind = request.kind
    warnings = fit(request, DecodedBody(tree), kind.schema, kind.kind)
    fill_beside_spec(tree, kind)
    tree["spec"] = orjson.loads(repeated.completed)
    note_object(tree, kind)
    return NewObject(tree, warnings, repeated, completed=True)
