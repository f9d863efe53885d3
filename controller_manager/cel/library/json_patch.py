"""What expressions that make JSON patches have besides: keys of paths, and the type of an operation."""

from controller_manager.cel.library import Function, Library, Overload
from controller_manager.cel.library.costs import same_size_estimate, scan
from controller_manager.cel.types import DYN, STRING, ObjectType

OPERATION = ObjectType("JSONPatch", {"op": STRING, "path": STRING, "from": STRING, "value": DYN})


def escape_key(key: str) -> str:
    """Return a key as it stands in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


JSON_PATCH = Library(
    "kubernetes.jsonpatch",
    (
        Function(
            "jsonpatch.escapeKey",
            (
                Overload(
                    "string_jsonpatch_escapeKey_string", (STRING,), STRING, escape_key, estimate=same_size_estimate
                ),
            ),
            scan(),
        ),
    ),
)
