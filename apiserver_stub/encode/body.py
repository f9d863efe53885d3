"""Request bodies as trees: which media types are read, and that an object is what its URL says."""

from dataclasses import dataclass
from typing import Any

from apiserver_stub.encode import json, protobuf, yaml
from controller_manager.api.errors import BadRequest, UnsupportedMediaType
from controller_manager.api.wire import Request

Tree = dict[str, Any]

JSON, YAML = "application/json", "application/yaml"


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded object, and the paths of its keys that came twice."""

    tree: Tree
    duplicates: tuple[str, ...] = ()


def decode_body(request: Request, api_version: str, kind: str) -> Body:
    """The object in the body; a missing `apiVersion` or `kind` is filled in.

    Raises `BadRequest` for anything but an object of that version and kind, `UnsupportedMediaType` for a body that is
    neither JSON nor YAML, nor protobuf of a kind that has messages.
    """
    tree, duplicates = _decode(request, api_version, kind)
    _check_type(tree, "kind", kind)
    _check_type(tree, "apiVersion", api_version)
    return Body(tree, duplicates)


def decode_options(request: Request) -> Tree:
    """The `DeleteOptions` in the body, empty when there is none. Raises as `decode_body`."""
    if not request.body:
        return {}
    tree, _ = _decode(request, "v1", "DeleteOptions")
    if tree.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest(f"the kind in the data ({tree['kind']}) does not match the expected kind (DeleteOptions)")
    return tree


def media_type(request: Request) -> str:
    """The media type of the body without its parameters; JSON when the request does not say."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def unsupported(accepted: tuple[str, ...]) -> UnsupportedMediaType:
    """The refusal of a body in another media type."""
    known = ", ".join(accepted)
    return UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types: {known}")


def _decode(request: Request, api_version: str, kind: str) -> tuple[Tree, tuple[str, ...]]:
    match media_type(request):
        case "application/json":
            tree, duplicates = json.decode_noting(request.body)
        case "application/yaml":
            tree, duplicates = yaml.load(request.body)
        case protobuf.MEDIA_TYPE if protobuf.knows(api_version, kind):
            return protobuf.decode(request.body, api_version, kind), ()
        case _:
            raise unsupported((JSON, YAML))
    if not isinstance(tree, dict):
        raise BadRequest("the body is not an object")
    return tree, duplicates


def _check_type(tree: Tree, field: str, expected: str) -> None:
    found = tree.get(field) or expected
    if found != expected:
        raise BadRequest(f"the {field} in the data ({found}) does not match the expected {field} ({expected})")
    tree[field] = expected
