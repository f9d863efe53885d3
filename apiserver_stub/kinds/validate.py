"""Judges an object by all rules of its kind at once; the rules themselves stand in `rules/`, a file per subject."""

from apiserver_stub.kinds.error_list import ErrorList
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.rules.metadata import check_metadata
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import same_but
from apiserver_stub.kinds.validate_schema import check_schema
from controller_manager.api.errors import Cause

_PLAIN = KindRules()
_REQUIRED = "FieldValueRequired"
_OF_FORM = frozenset({"FieldValueInvalid", "FieldValueNotSupported"})
# Subresources that write a status: the rest of the object has been judged, by whatever rules held then.
_OF_STATUS = frozenset({"status", "approval"})


def validate(kind: ResourceInfo, new: Tree, old: Tree | None, part: str = "") -> list[Cause]:
    """All problems of a new object, or of an update of `old` through the subresource `part`; none when the list is
    empty.
    """
    found = ErrorList()
    rules = kind.rules
    check_metadata(kind, rules.name, new, old, found)
    if old is None:
        rules.body(new, None, found)
        rules.born(new, None, found)
    else:
        _judge_change(rules, new, old, part or _implied(new, old), found)
    return _once([*found.causes, *check_schema(new, kind.schema)])


def _once(causes: list[Cause]) -> list[Cause]:
    """Each cause once; of a value that is missing nothing else is told."""
    if not causes:
        return causes
    missing = {cause.field for cause in causes if cause.reason == _REQUIRED}
    return [cause for cause in dict.fromkeys(causes) if cause.reason not in _OF_FORM or cause.field not in missing]


def _implied(new: Tree, old: Tree) -> str:
    return "status" if same_but(("status",), new, old) else ""


def _judge_change(rules: KindRules, new: Tree, old: Tree, part: str, found: ErrorList) -> None:
    if part in _OF_STATUS:
        rules.parts.get(part, _PLAIN.change)(new, old, found)
    else:
        rules.body(new, None, found)
        rules.parts.get(part, rules.change)(new, old, found)
