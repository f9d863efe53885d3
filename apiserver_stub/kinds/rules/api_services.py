"""Validation of APIServices: group version, priorities, and the optional service of an extension API server."""

from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules, between, each, form, need, within
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_MOST_GROUP, _MOST_VERSION = 20_000, 1000
_SPEC = place("spec")
_GROUP, _VERSION = form(names.subdomain), form(names.old_label)
_GROUP_PRIORITY = between(1, _MOST_GROUP, f"must be positive and less than {_MOST_GROUP}")
_VERSION_PRIORITY = between(1, _MOST_VERSION, f"must be positive and less than {_MOST_VERSION}")
_PORT = between(1, 65535, "port is not valid: must be between 1 and 65535, inclusive")
_SERVICE = need("namespace", "name")
_DEFAULT_PORT = 443
_STATUSES = ("True", "False", "Unknown")


def _service(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = tree.get("spec") or {}
    group, version = spec.get("group") or "", spec.get("version") or ""
    name = (tree.get("metadata") or {}).get("name", "")
    if name and name != f"{version}.{group}" and not names.path_segment(name):
        errors.invalid(place("metadata.name"), name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')
    if group:
        _GROUP(group, (_SPEC, "group"), errors)
    elif version != "v1":
        errors.required((_SPEC, "group"), "only v1 may have an empty group and it better be legacy kube")
    _VERSION(version, (_SPEC, "version"), errors)
    _GROUP_PRIORITY(spec.get("groupPriorityMinimum") or 0, (_SPEC, "groupPriorityMinimum"), errors)
    _VERSION_PRIORITY(spec.get("versionPriority") or 0, (_SPEC, "versionPriority"), errors)
    _service_and_tls(spec, errors)


def _service_and_tls(spec: Tree, errors: ErrorList) -> None:
    """Check how the extension API server is found and how its certificate is verified."""
    service, bundle, insecure = spec.get("service"), spec.get("caBundle") or "", spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            size = len(bundle) * 3 // 4 - bundle.count("=")
            errors.invalid((_SPEC, "caBundle"), f"{size} bytes", "local APIServices may not have a caBundle")
        if insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            errors.invalid((_SPEC, "insecureSkipTLSVerify"), True, why)
        return
    at = (_SPEC, "service")
    _SERVICE(service, at, errors)
    _PORT(service.get("port", _DEFAULT_PORT), (at, "port"), errors)
    if insecure and bundle:
        errors.invalid((_SPEC, "insecureSkipTLSVerify"), True, "may not be true if caBundle is present")


def _condition(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    if tree.get("status", "") not in _STATUSES:
        errors.unsupported((at, "status"), tree.get("status", ""), _STATUSES)


_CONDITIONS = within("status.conditions", each(_condition))


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    _CONDITIONS(new, None, errors)


RULES = {
    "apiregistration.k8s.io/v1/APIService": KindRules(
        _service, subresources={"status": _status}, name=names.path_segment
    ),
}
