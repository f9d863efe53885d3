"""The rules of API services."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import KindRules, between, both, form, need, record, within
from apiserver_stub.kinds.rules.formats import PORT
from apiserver_stub.kinds.trees import get_in

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
    "apiregistration.k8s.io/v1/APIService": KindRules(
        both(within("spec", _API_SERVICE_SPEC), _named_after_version), name=names.path_segment
    ),
}
