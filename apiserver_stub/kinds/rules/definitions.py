"""The rules of definitions of custom resources; those of their schemas are in `kinds/structural/`.

Causes name fields as the original's internal type has them: what all versions say alike (schema, subresources, columns,
selectable fields) is told of `spec`, of a version only what differs.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.x509 import load_pem_x509_certificates

from apiserver_stub.kinds import names
from apiserver_stub.kinds.api_approval import APPROVAL, Approval, approval_of, is_protected
from apiserver_stub.kinds.definition_conditions import ESTABLISHED, is_true
from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.rules.metadata import check_embedded_metadata
from apiserver_stub.kinds.rules.webhook_place import check_place
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.structural.definition_schema import SchemaOptions, check_schema, options_for
from apiserver_stub.kinds.structural.field_path import resolve_path
from apiserver_stub.kinds.structural.go_form import shown, version_form
from apiserver_stub.kinds.structural.structurality import unsupported
from apiserver_stub.kinds.trees import get_in

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_MOST_FIELDS = 8
_LONGEST_WARNING = 256  # bytes
_SPEC, _STATUS = place("spec"), place("status")
# What versions may say alike, and what the internal type calls it then.
_SHARED = {
    "schema": "validation", "subresources": "subresources", "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}  # fmt: skip
_MIXED_CASE = "may have mixed case, but should otherwise match: "
_NOT_WEBHOOK = "should not be set when strategy is not set to Webhook"


@dataclass(frozen=True, slots=True)
class _Ratchets:
    """The rules that an update may go on breaking, since the stored object does; `many_fields` are the versions whose
    selectable fields are too many and the same, `unchanged` those whose schemas are.
    """

    schema: SchemaOptions = field(default_factory=lambda: SchemaOptions(check_metadata=check_embedded_metadata))
    needs_schema: bool = True
    known_review: bool = True
    any_bundle: bool = True
    many_fields: frozenset[str] = frozenset()
    unchanged: frozenset[str] = frozenset()


def _spec(spec: Tree, ratchets: _Ratchets, errors: ErrorList) -> None:
    versions = spec.get("versions", [])
    shared = {name for name in _SHARED if _is_shared(name, versions)}
    _group_and_scope(spec, errors)
    _schemas_present(spec, ratchets, errors)
    if spec.get("preserveUnknownFields") and any(_has_default(v.get("schema")) for v in versions):
        errors.invalid((_SPEC, "preserveUnknownFields"), True, "must be false in order to use defaults in the schema")
    for index, version in enumerate(versions):
        at = ((_SPEC, "versions"), index)
        _version(version, at, ratchets, errors)
        own = {name: (at, name) for name in _SHARED if name not in shared}
        _parts(version, own, ratchets, errors, has_status=_has_status(version))
    _version_names(versions, shared, errors)
    _names(spec.get("names", {}), (_SPEC, "names"), errors, required=True)
    if versions:
        common = {name: (_SPEC, _SHARED[name]) for name in _SHARED if name in shared}
        _parts(versions[0], common, ratchets, errors, has_status=any(map(_has_status, versions)))
    _conversion(spec, ratchets, errors)


def _is_shared(name: str, versions: list[Tree]) -> bool:
    return all(version.get(name) == versions[0].get(name) for version in versions)


def _group_and_scope(spec: Tree, errors: ErrorList) -> None:
    group, scope = spec.get("group", ""), spec.get("scope", "")
    if not group:
        errors.required((_SPEC, "group"))
    elif why := names.subdomain(group):
        errors.invalid((_SPEC, "group"), group, why)
    elif "." not in group:
        errors.invalid((_SPEC, "group"), group, "should be a domain with at least one dot")
    if not scope:
        errors.required((_SPEC, "scope"))
    elif scope not in ("Cluster", "Namespaced"):
        errors.unsupported((_SPEC, "scope"), scope, ("Cluster", "Namespaced"))


def _schemas_present(spec: Tree, ratchets: _Ratchets, errors: ErrorList) -> None:
    for index, version in enumerate(spec.get("versions", ())):
        if _schema_of(version) is not None:
            continue
        at = ((((_SPEC, "versions"), index), "schema"), "openAPIV3Schema")
        if ratchets.needs_schema:
            errors.required(at)
        elif version.get("served") and not spec.get("preserveUnknownFields"):
            errors.required(at, "because otherwise all fields are pruned")


def _version(version: Tree, at: FieldPath, ratchets: _Ratchets, errors: ErrorList) -> None:
    if why := names.old_label(version.get("name", "")):
        errors.invalid((at, "name"), version.get("name", ""), why)
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
    version: Tree, places: Mapping[str, FieldPath], ratchets: _Ratchets, errors: ErrorList, *, has_status: bool
) -> None:
    """Report what is wrong with the parts of a version that are at these places."""
    name, schema = version.get("name", ""), _schema_of(version)
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
    if len(seen) > _MOST_FIELDS and not many:
        errors.too_many(at, len(seen), _MOST_FIELDS)


def _root_of(at: FieldPath) -> str | int | None:
    root: str | int | None = None
    while at is not None:
        at, root = at
    return root


def _version_names(versions: list[Tree], shared: set[str], errors: ErrorList) -> None:
    at, told = (_SPEC, "versions"), [version.get("name", "") for version in versions]
    wrong = []
    if len(set(told)) != len(told):
        wrong.append("must contain unique version names")
    if sum(version.get("storage", False) for version in versions) != 1:
        wrong.append("must have exactly one version marked as storage version")
    for why in wrong:
        own = [{name: part for name, part in version.items() if name not in shared} for version in versions]
        errors.invalid(at, shown([version_form(version) for version in own]), why)
    if told and told[0] and (why := names.old_label(told[0])):  # which the internal type has a second time
        errors.invalid((_SPEC, "version"), told[0], why)


def _names(told: Tree, at: FieldPath, errors: ErrorList, *, required: bool) -> None:
    if required:
        for name in ("plural", "singular", "kind", "listKind"):
            if not told.get(name):
                errors.required((at, name))
    for name in ("plural", "singular"):
        if told.get(name) and (why := names.old_label(told[name])):
            errors.invalid((at, name), told[name], why)
    for name in ("kind", "listKind"):
        if told.get(name) and (why := names.old_label(told[name].lower())):
            errors.invalid((at, name), told[name], f"{_MIXED_CASE}{why}")
    _labels(told, "shortNames", at, errors)
    if told.get("kind") and told["kind"] == told.get("listKind"):
        errors.invalid((at, "listKind"), told["listKind"], "kind and listKind may not be the same")
    _labels(told, "categories", at, errors)


def _labels(told: Tree, name: str, at: FieldPath, errors: ErrorList) -> None:
    for index, label in enumerate(told.get(name, ())):
        if why := names.old_label(label):
            errors.invalid(((at, name), index), label, why)


def _conversion(spec: Tree, ratchets: _Ratchets, errors: ErrorList) -> None:
    at, conversion = (_SPEC, "conversion"), spec.get("conversion", {})
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook", {})
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions", [])
    if strategy != "None" and spec.get("preserveUnknownFields"):
        errors.invalid((at, "strategy"), strategy, "must be None if spec.preserveUnknownFields is true")
    if not strategy:
        errors.required((at, "strategy"))
    elif strategy not in ("None", "Webhook"):
        errors.unsupported((at, "strategy"), strategy, ("None", "Webhook"))
    if strategy != "Webhook":
        if config is not None:
            errors.forbidden((at, "webhookClientConfig"), _NOT_WEBHOOK)
        if versions:
            errors.forbidden((at, "conversionReviewVersions"), _NOT_WEBHOOK)
        return
    if config is None:
        errors.required((at, "webhookClientConfig"), "required when strategy is set to Webhook")
    else:
        _client_config(config, (at, "webhookClientConfig"), ratchets, errors)
    _review_versions(versions, (at, "conversionReviewVersions"), ratchets, errors)


def _client_config(config: Tree, at: FieldPath, ratchets: _Ratchets, errors: ErrorList) -> None:
    check_place(config, at, errors)
    if not ratchets.any_bundle and (why := bundle_problem(config)):
        errors.invalid((at, "caBundle"), config["caBundle"], why)


def _review_versions(versions: list[str], at: FieldPath, ratchets: _Ratchets, errors: ErrorList) -> None:
    if not versions:
        errors.required(at)
        return
    seen = set[str]()
    for index, version in enumerate(versions):
        if version in seen:
            errors.invalid((at, index), version, "duplicate version")
        elif why := names.old_label(version):
            errors.invalid((at, index), version, why)
        seen.add(version)
    if ratchets.known_review and not seen.intersection(_REVIEW_VERSIONS):
        errors.invalid(at, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}")


def bundle_problem(config: Tree) -> str:
    """Return why the `caBundle` of a webhook's client configuration cannot be used; empty if it can, or is absent."""
    if not config.get("caBundle"):
        return ""
    try:
        load_pem_x509_certificates(b64decode(config["caBundle"]))
    except ValueError:
        return "unable to load root certificates: unable to parse bytes as PEM block"
    return ""


def _stored_versions(definition: Tree, errors: ErrorList) -> None:
    at, stored = (_STATUS, "storedVersions"), get_in(definition, ("status", "storedVersions"))
    versions = get_in(definition, ("spec", "versions")) or ()
    if not stored:
        errors.invalid(at, None, "must have at least one stored version")
        return
    for version in versions:
        if version.get("storage") and version["name"] not in stored:
            errors.invalid(at, stored, f"must have the storage version {version['name']}")
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.invalid((at, index), name, why)


def _approval(new: Tree, old: Tree | None, errors: ErrorList) -> None:
    if not is_protected(get_in(new, ("spec", "group")) or ""):
        return
    state, reason = approval_of(new)
    if old is not None and approval_of(old)[0] is state:
        return
    at = (place("metadata.annotations"), key(APPROVAL))
    if state is Approval.MISSING:
        errors.required(at, reason)
    elif state is Approval.INVALID:
        errors.invalid(at, new["metadata"]["annotations"][APPROVAL], reason)


def _rest(new: Tree, old: Tree | None, errors: ErrorList) -> None:
    _names(get_in(new, ("status", "acceptedNames")) or {}, (_STATUS, "acceptedNames"), errors, required=False)
    _stored_versions(new, errors)
    _approval(new, old, errors)
    preserved = old is not None and get_in(old, ("spec", "preserveUnknownFields"))
    if get_in(new, ("spec", "preserveUnknownFields")) and not preserved:
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.invalid((_SPEC, "preserveUnknownFields"), True, why)


def _on_create(definition: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = definition.get("spec", {})
    required = f"{get_in(spec, ('names', 'plural')) or ''}.{spec.get('group', '')}"
    if definition["metadata"].get("name") != required:
        errors.invalid(
            place("metadata.name"), definition["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group'
        )
    _spec(spec, _Ratchets(), errors)
    _rest(definition, None, errors)


def _on_update(new: Tree, old: Tree, errors: ErrorList) -> None:
    spec, before = new.get("spec", {}), old.get("spec", {})
    _spec(spec, _ratchets(new, old), errors)
    fixed = [("group",), ("names", "plural")]
    if is_true(old, ESTABLISHED):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for path in fixed:
        value = get_in(spec, path)
        if value != get_in(before, path):
            errors.invalid(place(".".join(("spec", *path))), value, IMMUTABLE)
    _rest(new, old, errors)


def _ratchets(new: Tree, old: Tree) -> _Ratchets:
    spec = old.get("spec", {})
    config = get_in(spec, ("conversion", "webhook", "clientConfig")) or {}
    reviews = get_in(spec, ("conversion", "webhook", "conversionReviewVersions")) or ()
    before = {version.get("name"): version for version in spec.get("versions", ())}
    schemas = [schema for version in before.values() if (schema := _schema_of(version)) is not None]
    same = [
        (version.get("name", ""), version, before[version.get("name")])
        for version in get_in(new, ("spec", "versions")) or ()
        if version.get("name") in before
    ]
    many = {
        name
        for name, version, was in same
        if len(was.get("selectableFields", ())) > _MOST_FIELDS
        and version.get("selectableFields") == was["selectableFields"]
    }
    return _Ratchets(
        options_for(schemas, check_embedded_metadata),
        needs_schema=len(schemas) == len(before),
        known_review=not reviews or any(review in _REVIEW_VERSIONS for review in reviews),
        any_bundle=not is_true(old, ESTABLISHED) or bool(bundle_problem(config)),
        many_fields=frozenset(many),
        unchanged=frozenset(name for name, version, was in same if version.get("schema") == was.get("schema")),
    )


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    _names(get_in(new, ("status", "acceptedNames")) or {}, (_STATUS, "acceptedNames"), errors, required=False)


def _schema_of(version: Tree) -> Tree | None:
    found: Tree | None = get_in(version, ("schema", "openAPIV3Schema"))
    return found


def _has_default(schema: Any) -> bool:
    return any("default" in inner for inner in _within(schema or {}))


def _within(tree: Tree) -> Iterator[Tree]:
    yield tree
    for value in tree.values():
        for inner in value if isinstance(value, list) else (value,):
            if isinstance(inner, dict):
                yield from _within(inner)


RULES = {
    "apiextensions.k8s.io/v1/CustomResourceDefinition": KindRules(
        change=_on_update, subresources={"status": _status}, on_create=_on_create, by_schema=False
    ),
}
