"""What came before in bodies of creates: a controller makes many objects of one template, and leaves their names to the
server, or numbers them. What becomes of a spec, or of a body without its name (how it fits its schema, its defaults,
the fields that its creator owns), follows from its bytes alone, and is done once. The fields that are owned are the
same whatever the free texts of a pod are.
"""

import msgspec
import orjson

from apiserver_stub.api_request import APIRequest, Tree
from apiserver_stub.encode.body import DecodedBody
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.defaults import fill_beside_spec, has_lasting_defaults
from apiserver_stub.kinds.findings import LONGEST, Findings, beside_spec, without_free_text
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.patch.field_set import Fields
from apiserver_stub.patch.managed_fields import fields_of
from apiserver_stub.verbs.body_parts import BodyParts, body_parts
from apiserver_stub.verbs.decode import Warnings, fit, note_object, read_object
from apiserver_stub.verbs.query import field_validation


class Repeated:
    """A spec or a body that has come `times` often. Once that is more than once, `completed` is what it is with its
    defaults, in JSON, and `fields` are those that the creator of a body owns.
    """

    __slots__ = ("completed", "fields", "times")

    def __init__(self) -> None:
        self.times = 0
        self.completed = b""
        self.fields: Fields | None = None

    def note(self, part: Tree, fields: Fields | None = None) -> None:
        """Note what has become of the part. The first time nothing is: most of what people write never comes again."""
        self.times += 1
        if self.times > 1:
            self.fields = fields
            self.completed = encode(part)


class OwnedFields:
    """The `fields` that the creator of an object owns, once they are known."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: Fields | None = None


class NewObject(msgspec.Struct, frozen=True):
    """The object in the body of a create, `completed` by its defaults if so much of it was known. Its spec, or the
    `whole` of it, is known or may become so if they are there.
    """

    tree: Tree
    warnings: Warnings = ()
    spec: Repeated | None = None
    whole: Repeated | None = None
    completed: bool = False

    @property
    def fields(self) -> Fields | None:
        """The fields that its creator owns, if the whole is known."""
        return self.whole.fields if self.whole is not None else None

    def owned(self, tree: Tree, kind: ResourceInfo) -> OwnedFields:
        """Return what is known of the fields that its creator owns, now that it is complete."""
        if self.spec is None or "spec" not in tree:
            return OwnedFields()
        return _OWNED.of(b"%b\n%b" % (without_free_text(tree["spec"]), beside_spec(tree)), kind.schema)

    def note(self, tree: Tree, owned: OwnedFields) -> None:
        """Note what has become of it, of which its creator owns all."""
        metadata = dict(tree["metadata"])
        entries = metadata.pop("managedFields", None)
        if not entries:
            return
        owned.fields = fields = fields_of(entries[0])
        if self.spec is not None and not self.spec.completed:
            self.spec.note(tree["spec"])
        if self.whole is not None and not self.whole.completed:
            self.whole.note({**tree, "metadata": metadata}, fields)


_OWNED = Findings(OwnedFields, most=256)
_SPECS = Findings(Repeated, most=256)
_BODIES = Findings(Repeated, most=256)
_NAMED_BODIES = Findings(Repeated, most=128)


def parts_of_new(request: APIRequest) -> BodyParts | None:
    """Return the parts of the body of a create; None if it has to be read whole."""
    is_read_whole = len(request.http.body) > LONGEST or not has_lasting_defaults(request.kind)
    return None if is_read_whole else body_parts(request)


def read_new_object(request: APIRequest, parts: BodyParts | None) -> NewObject:
    """Return the object in the body of a create, which has these parts, as `read_object` does, which also says what
    raises what.
    """
    kind = request.kind
    if parts is None:
        return NewObject(*read_object(request))
    whole, name = _body_of(request, parts)
    if whole is not None and whole.completed:
        tree: Tree = orjson.loads(whole.completed)
        if name:
            tree["metadata"]["name"] = name
        note_object(tree, kind)
        return NewObject(tree, whole=whole, completed=True)
    if parts.spec is None:
        return NewObject(*read_object(request))
    spec = _SPECS.of(parts.spec, (kind.schema, type(parts)))
    if spec.completed and (beside := parts.beside()) is not None:
        tree, warnings = _completed(request, beside, spec)
        return NewObject(tree, warnings, spec, whole if _is_lossless(request, warnings) else None, completed=True)
    tree, warnings = read_object(request)
    if spec.completed or not _is_lossless(request, warnings):
        return NewObject(tree, warnings)
    return NewObject(tree, warnings, spec, whole)


def _body_of(request: APIRequest, parts: BodyParts) -> tuple[Repeated | None, str]:
    """Return what is known of the bodies that differ from this one in the name at most, and the name if it has one."""
    likeness = parts.likeness
    if likeness is None:
        return None, ""
    data, name = likeness
    bodies = _NAMED_BODIES if name else _BODIES
    return bodies.of(data, (request.kind.schema, request.namespace)), name


def _is_lossless(request: APIRequest, warnings: Warnings) -> bool:
    """Return whether nothing was lost of a body that others may want to be told of."""
    return not warnings and field_validation(request.query) != "Ignore"


def _completed(request: APIRequest, tree: Tree, spec: Repeated) -> tuple[Tree, Warnings]:
    kind = request.kind
    warnings = fit(request, DecodedBody(tree), kind.schema, kind.kind)
    fill_beside_spec(tree, kind)
    tree["spec"] = orjson.loads(spec.completed)
    note_object(tree, kind)
    return tree, warnings
