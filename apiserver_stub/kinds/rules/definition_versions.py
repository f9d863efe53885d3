"""Validation of the versions of a custom resource (`spec.versions`). Schemas are checked in `kinds/structural/`.

Causes use the field names of Kubernetes' internal type. Parts that are the same in all versions (schema, subresources,
columns, selectable fields) are reported under `spec`, differing ones under their version.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.definition_ratchets import MOST_SELECTABLE_FIELDS, Ratchets, schema_of
from apiserver_stub.kinds.structural.definition_schema import check_schema
from apiserver_stub.kinds.structural.field_path import resolve_path
from apiserver_stub.kinds.structural.go_form import shown, version_form
from apiserver_stub.kinds.structural.structurality import unsupported
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_SPEC = place("spec")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_LONGEST_WARNING = 256  # bytes
# Parts that may be the same in all versions, and their name in the internal type.
_SHARED = {
    "schema": "validation", "subresources": "subresources", "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}  # fmt: skip


def check_versions(spec: Tree, ratchets: Ratchets, errors: ErrorList) -> None:
    """Report errors of the versions, one by one and together, except in the parts they all share."""
    versions = spec.get("versions", [])
    shared = _shared(versions)
    _schemas_present(spec, ratchets, errors)
    if spec.get("preserveUnknownFields") and any(_has_default(v.get("schema")) for v in versions):
        errors.invalid((_SPEC, "preserveUnknownFields"), True, "must be false in order to use defaults in the schema")
    for index, version in enumerate(versions):
        at = ((_SPEC, "versions"), index)
        _version(version, at, errors)
        own = {name: (at, name) for name in _SHARED if name not in shared}
        _parts(version, own, ratchets, errors, has_status=_has_status(version))
    _version_names(versions, shared, errors)


def check_shared_parts(spec: Tree, ratchets: Ratchets, errors: ErrorList) -> None:
    """Report errors in the parts that all versions share."""
    versions = spec.get("versions", [])
    if versions:
        common = {name: (_SPEC, _SHARED[name]) for name in _SHARED if name in _shared(versions)}
        _parts(versions[0], common, ratchets, errors, has_status=any(map(_has_status, versions)))


def _shared(versions: list[Tree]) -> set[str]:
    return {name for name in _SHARED if all(version.get(name) == versions[0].get(name) for version in versions)}


def _schemas_present(spec: Tree, ratchets: Ratchets, errors: ErrorList) -> None:
    for index, version in enumerate(spec.get("versions", ())):
        if schema_of(version) is not None:
            continue
        at = ((((_SPEC, "versions"), index), "schema"), "openAPIV3Schema")
        if ratchets.needs_schema:
            errors.required(at)
        elif version.get("served") and not spec.get("preserveUnknownFields"):
            errors.required(at, "because otherwise all fields are pruned")


def _version(version: Tree, at: FieldPath, errors: ErrorList) -> None:
    if why := names.old_label(version.get("name", "")):
        errors.malformed((at, "name"), version.get("name", ""), why)
    warning, place = version.get("deprecationWarning"), (at, "deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        errors.invalid(place, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode("utf-8", "surrogatepass")) > _LONGEST_WARNING:
        errors.invalid(place, warning, f"must be <= {_LONGEST_WARNING} characters long")
    if not warning:
        errors.invalid(place, warning, "must not be an empty string")
    bad = next((index for index, mark in enumerate(warning) if not mark.isprintable()), None)
    if bad is not None:
        why = "must only contain printable UTF-8 characters; non-printable character found at index"
        errors.invalid(place, warning, f"{why} {len(warning[:bad].encode())}")


def _has_status(version: Tree) -> bool:
    return get_in(version, ("subresources", "status")) is not None


def _parts(
    version: Tree, places: Mapping[str, FieldPath], ratchets: Ratchets, errors: ErrorList, *, has_status: bool
) -> None:
    """Report errors in the parts of a version at these paths."""
    name, schema = version.get("name", ""), schema_of(version)
    if "schema" in places and schema is not None:
        same = name in ratchets.unchanged
        check_schema(schema, places["schema"], ratchets.schema, errors, has_status=has_status, same=same)
    if "subresources" in places:
        _subresources(version.get("subresources", {}), places["subresources"], errors)
    if "additionalPrinterColumns" in places:
        for index, column in enumerate(version.get("additionalPrinterColumns", ())):
            _column(column, (places["additionalPrinterColumns"], index), errors)
    if "selectableFields" in places and version.get("selectableFields"):
        many, place = name in ratchets.many_fields, places["selectableFields"]
        if schema is None or "schema" not in places:
            included = "validations.schema is included"
            if place != (_SPEC, "selectableFields"):
                included = "`version.schema.openAPIV3Schema` is not included"
            errors.invalid(place, "", f"may only be set when {included}")
        else:
            _selectable(version["selectableFields"], schema, place, errors, many=many)


def _subresources(subresources: Tree, at: FieldPath, errors: ErrorList) -> None:
    scale = subresources.get("scale")
    if scale is None:
        return
    for name, roots, where in (
        ("specReplicasPath", (".spec.",), "under .spec"),
        ("statusReplicasPath", (".status.",), "under .status"),
        ("labelSelectorPath", (".spec.", ".status."), "under either .spec or .status"),
    ):
        path, here = scale.get(name, ""), ((at, "scale"), name)
        if not path:
            if name != "labelSelectorPath":
                errors.required(here)
        elif _is_json_path(path, here, errors) and not path.startswith(roots):
            errors.invalid(here, path, f"should be a json path {where}")


def _is_json_path(path: str, at: FieldPath, errors: ErrorList) -> bool:
    if path.startswith("."):
        return True
    errors.invalid(at, path, "must be a simple json path starting with .")
    return False


def _column(column: Tree, at: FieldPath, errors: ErrorList) -> None:
    kind, form, path = column.get("type", ""), column.get("format", ""), column.get("jsonPath", "")
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("name"):
        errors.required((at, "name"))
    if not kind:
        errors.required((at, "type"), types)
    elif kind not in _COLUMN_TYPES:
        errors.invalid((at, "type"), kind, types)
    if form and form not in _COLUMN_FORMATS:
        errors.invalid((at, "format"), form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not path:
        errors.required((at, "JSONPath"))
    else:
        _is_json_path(path, (at, "JSONPath"), errors)


def _selectable(fields: list[Tree], schema: Tree, at: FieldPath, errors: ErrorList, *, many: bool) -> None:
    why = unsupported(schema)
    if why and at is not None:
        errors.invalid(((at[0], "schema"), "openAPIV3Schema"), "", why)
    seen = set[FieldPath]()
    for index, selectable in enumerate(fields):
        path, here = selectable.get("jsonPath", ""), ((at, index), "jsonPath")
        if not path:
            errors.required(here)
        if not path or why:
            continue
        try:
            found, described = resolve_path(path, schema, brackets=False)
        except ValueError as error:
            errors.invalid(here, path, f"is an invalid path: {error}")
            continue
        if _root_of(found) == "metadata":
            errors.invalid(here, path, "must not point to fields in metadata")
        if described.get("type") not in ("string", "boolean", "integer"):
            why = "must point to a field of type string, boolean or integer. "
            errors.invalid(here, path, why + "Enum string fields and strings with formats are allowed.")
        if found in seen:
            errors.duplicate(here, path)
        seen.add(found)
    if len(seen) > MOST_SELECTABLE_FIELDS and not many:
        errors.too_many(at, len(seen), MOST_SELECTABLE_FIELDS)


def _root_of(at: FieldPath) -> str | int | None:
    root: str | int | None = None
    while at is not None:
        at, root = at
    return root


def _version_names(versions: list[Tree], shared: set[str], errors: ErrorList) -> None:
    at, version_names = (_SPEC, "versions"), [version.get("name", "") for version in versions]
    wrong = []
    if len(set(version_names)) != len(version_names):
        wrong.append("must contain unique version names")
    if sum(version.get("storage", False) for version in versions) != 1:
        wrong.append("must have exactly one version marked as storage version")
    for why in wrong:
        own = [{name: part for name, part in version.items() if name not in shared} for version in versions]
        errors.invalid(at, shown([version_form(version) for version in own]), why)
    # The internal type also has the first version's name in `spec.version`.
    if version_names and version_names[0] and (why := names.old_label(version_names[0])):
        errors.malformed((_SPEC, "version"), version_names[0], why)


def _has_default(schema: Any) -> bool:
    return any("default" in inner for inner in _inside(schema or {}))


def _inside(tree: Tree) -> Iterator[Tree]:
    yield tree
    for value in tree.values():
        for inner in value if isinstance(value, list) else (value,):
            if isinstance(inner, dict):
                yield from _inside(inner)
