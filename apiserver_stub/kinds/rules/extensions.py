"""The rules of definitions of custom resources, their schemas apart (`structural`), and of API services."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.admissionregistration import CLIENT_CONFIG, REVIEW_VERSIONS
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    Rule,
    between,
    both,
    distinct_by,
    each,
    fixed,
    form,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import PORT
from apiserver_stub.kinds.rules.structural import structural
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_PROTECTED = (".k8s.io", ".kubernetes.io")
_APPROVAL = "api-approved.kubernetes.io"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_ONE_STORED = "must have exactly one version marked as storage version"


def _kind(name: str) -> str:
    why = names.old_label(name.lower())
    return f"may have mixed case, but should otherwise match: {why}" if why else ""


_OLD_LABEL = form(names.old_label)
_NAMES = record({
    "plural": _OLD_LABEL, "singular": _OLD_LABEL, "kind": form(_kind), "listKind": form(_kind),
    "shortNames": each(_OLD_LABEL), "categories": each(_OLD_LABEL),
})  # fmt: skip


def _kinds_differ(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, list_kind = (get_in(spec, ("names", name)) for name in ("kind", "listKind"))
    if kind and kind == list_kind:
        errors.invalid(((at, "names"), "listKind"), list_kind, "kind and listKind may not be the same")


def _group(name: str) -> str:
    return names.subdomain(name) or ("" if "." in name else "should be a domain with at least one dot")


def _json_path(path: Any, at: FieldPath, errors: ErrorList) -> None:
    if not path.startswith("."):
        errors.invalid(at, path, "must be a simple json path starting with .")


_COLUMNS = each(record({
    "type": one_of(*_COLUMN_TYPES), "format": one_of(*_COLUMN_FORMATS), "jsonPath": _json_path,
}, need("jsonPath")))  # fmt: skip


def _path_under(*roots: str) -> Rule:
    def rule(path: Any, at: FieldPath, errors: ErrorList) -> None:
        if path and not path.startswith(roots):
            errors.invalid(at, path, f"should be a json path under {' or '.join(roots)}")

    return rule


_SUBRESOURCES = record({"scale": record({
    "specReplicasPath": _path_under(".spec."), "statusReplicasPath": _path_under(".status."),
    "labelSelectorPath": _path_under(".spec.", ".status."),
})})  # fmt: skip


def _version(version: Any, at: FieldPath, errors: ErrorList) -> None:
    schema = get_in(version, ("schema", "openAPIV3Schema"))
    here = ((at, "schema"), "openAPIV3Schema")
    if schema is None:
        errors.required(here, "schemas are required")
    else:
        structural(schema, here, errors)
    if version.get("deprecationWarning") is not None and not version.get("deprecated"):
        why = "can only be set for deprecated versions"
        errors.invalid((at, "deprecationWarning"), version["deprecationWarning"], why)


_VERSIONS = both(each(record({
    "name": _OLD_LABEL, "additionalPrinterColumns": _COLUMNS, "subresources": _SUBRESOURCES,
    "selectableFields": distinct_by("jsonPath"),
}, _version)), distinct_by("name"))  # fmt: skip


def _one_stored(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    versions = spec.get("versions") or ()
    if sum(version.get("storage") is True for version in versions) != 1:
        errors.invalid((at, "versions"), [version.get("name") for version in versions], _ONE_STORED)
    if spec.get("preserveUnknownFields"):
        why = "must be false; the schemas of versions have x-kubernetes-preserve-unknown-fields for that"
        errors.invalid((at, "preserveUnknownFields"), True, why)


def _conversion(conversion: Any, at: FieldPath, errors: ErrorList) -> None:
    strategy, webhook = conversion.get("strategy"), conversion.get("webhook")
    if strategy == "None" and webhook is not None:
        errors.forbidden((at, "webhook"), "should not be set when strategy is not set to Webhook")
    elif strategy == "Webhook" and (webhook or {}).get("clientConfig") is None:
        errors.required(((at, "webhook"), "clientConfig"), "required when strategy is set to Webhook")


_CONVERSION = record({
    "webhook": record({"clientConfig": CLIENT_CONFIG, "conversionReviewVersions": REVIEW_VERSIONS}),
}, _conversion)  # fmt: skip
_SPEC = record({
    "group": form(_group), "names": _NAMES, "versions": _VERSIONS, "conversion": _CONVERSION,
}, _one_stored, _kinds_differ)  # fmt: skip


def _named_after(definition: Any, _at: FieldPath, errors: ErrorList) -> None:
    name = get_in(definition, ("metadata", "name"))
    plural, group = get_in(definition, ("spec", "names", "plural")), get_in(definition, ("spec", "group"))
    if plural and group and name != f"{plural}.{group}":
        errors.invalid(place("metadata.name"), name, 'must be spec.names.plural+"."+spec.group')
    approval = (get_in(definition, ("metadata", "annotations")) or {}).get(_APPROVAL)
    if group and f".{group}".endswith(_PROTECTED) and not approval:
        why = "groups of the platform need the annotation"
        errors.required((place("metadata.annotations"), key(_APPROVAL)), f'{why} "{_APPROVAL}"')


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    if not get_in(new, ("status", "storedVersions")):
        errors.invalid(place("status.storedVersions"), [], "must have at least one stored version")


def _versions_kept(new: Tree, old: Tree, errors: ErrorList) -> None:
    """A version that objects may be stored in does not go."""
    known = {version.get("name") for version in get_in(new, ("spec", "versions")) or ()}
    stored = get_in(old, ("status", "storedVersions")) or ()
    for index, name in enumerate(stored):
        if name not in known:
            why = f"missing from spec.versions; {name} was a storage version, and stays until nothing is stored in it"
            errors.invalid((place("status.storedVersions"), index), name, why)


_FIXED = fixed("spec.group", "spec.names.plural")
_FIXED_ONCE_SERVED = fixed("spec.scope", "spec.names.kind")


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    _FIXED(new, old, errors)
    _versions_kept(new, old, errors)
    accepted = get_in(old, ("status", "conditions")) or ()
    if any(c.get("type") == "Established" and c.get("status") == "True" for c in accepted):
        _FIXED_ONCE_SERVED(new, old, errors)


_MOST_GROUP, _MOST_VERSION = 20_000, 1000
_SERVICE = record({"port": PORT}, need("namespace", "name"))


def _reached(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    local = spec.get("service") is None
    if local and spec.get("caBundle"):
        errors.invalid((at, "caBundle"), f"{len(spec['caBundle'])} bytes", "may only be set with `service`")
    if local and spec.get("insecureSkipTLSVerify"):
        why = "may only be set with `service`"
        errors.invalid((at, "insecureSkipTLSVerify"), True, why)
    if not local and spec.get("caBundle") and spec.get("insecureSkipTLSVerify"):
        why = "may not be true if caBundle is present"
        errors.invalid((at, "insecureSkipTLSVerify"), True, why)


_API_SERVICE_SPEC = record({
    "group": form(names.subdomain), "version": form(names.old_label), "service": _SERVICE,
    "groupPriorityMinimum": between(1, _MOST_GROUP, f"must be positive and less than {_MOST_GROUP}"),
    "versionPriority": between(1, _MOST_VERSION, f"must be positive and less than {_MOST_VERSION}"),
}, need("version"), _reached)  # fmt: skip


def _named_after_version(service: Any, _at: FieldPath, errors: ErrorList) -> None:
    name, group, version = (get_in(service, path) or "" for path in (
        ("metadata", "name"), ("spec", "group"), ("spec", "version"),
    ))  # fmt: skip
    if version and name != f"{version}.{group}":
        errors.invalid(place("metadata.name"), name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')


RULES = {
    "apiextensions.k8s.io/v1/CustomResourceDefinition": KindRules(
        both(within("spec", _SPEC), _named_after),
        _change,
        {"status": _status},
    ),
    "apiregistration.k8s.io/v1/APIService": KindRules(
        both(within("spec", _API_SERVICE_SPEC), _named_after_version), name=names.path_segment
    ),
}
