"""The rules of ingresses and their classes."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import Rules, each, fixed, form, need, one_of, outcome, record, within
from apiserver_stub.kinds.rules.formats import PORT, SUBDOMAIN, address
from apiserver_stub.kinds.rules.services import INGRESS_POINTS

_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS = ("/..", "/.")


def _host(name: str) -> str:
    return "must be a DNS name, not an IP address" if not address(name) else names.host(name)


def _class_controller(name: str) -> str:
    return "must be no more than 250 characters" if len(name) > 250 else names.domain_prefixed(name)


def _path(entry: Any, at: FieldPath, found: ErrorList) -> None:
    path, kind, here = entry.get("path", ""), entry.get("pathType"), (at, "path")
    if kind is None:
        found.required((at, "pathType"), "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not path.startswith("/"):
            found.invalid(here, path, "must be an absolute path")
        for bad in _BAD_SEQUENCES:
            if path and bad in path:
                found.invalid(here, path, f"must not contain '{bad}'")
        for bad in _BAD_ENDINGS:
            if path.endswith(bad):
                found.invalid(here, path, f"cannot end with '{bad}'")
    elif kind == "ImplementationSpecific" and path and not path.startswith("/"):
        found.invalid(here, path, "must be an absolute path")


def _backend(backend: Any, at: FieldPath, found: ErrorList) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        found.invalid(at, "", "cannot set both resource and service backends")
    elif service is None and resource is None:
        found.required(at, "resource or service backend is required")
    elif service is not None:
        _service(service, (at, "service"), found)


def _service(service: Any, at: FieldPath, found: ErrorList) -> None:
    name, port, here = service.get("name", ""), service.get("port") or {}, (at, "port")
    if name and (why := names.old_label(name)):
        found.invalid((at, "name"), name, why)
    if port.get("name") and port.get("number"):
        found.invalid(here, port, "cannot set both port name & port number")
    elif port.get("name"):
        if why := names.port_name(port["name"]):
            found.invalid((here, "name"), port["name"], why)
    elif port.get("number"):
        PORT(port["number"], (here, "number"), found)
    elif name:
        found.required(here, "port name or number is required")


_HTTP = record({"paths": each(record({"backend": _backend}, _path))}, need("paths"))


def _some_way(spec: Any, at: FieldPath, found: ErrorList) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        found.invalid(at, spec, "either `defaultBackend` or `rules` must be specified")


_SPEC = record({
    "defaultBackend": _backend, "ingressClassName": SUBDOMAIN,
    "rules": each(record({"host": form(_host), "http": _HTTP})),
    "tls": each(record({"hosts": each(form(names.host)), "secretName": SUBDOMAIN})),
}, _some_way)  # fmt: skip


def _parameters(parameters: Any, at: FieldPath, found: ErrorList) -> None:
    scope, space = parameters.get("scope"), parameters.get("namespace")
    if scope == "Namespace" and not space:
        found.required((at, "namespace"), "`parameters.scope` is set to 'Namespace'")
    elif scope == "Cluster" and space:
        found.forbidden((at, "namespace"), "`parameters.scope` is set to 'Cluster'")


_CLASS = record({
    "controller": form(_class_controller),
    "parameters": record({"scope": one_of("Cluster", "Namespace"), "kind": form(names.path_segment)}, _parameters),
})  # fmt: skip

RULES = {
    "networking.k8s.io/v1/Ingress": Rules(within("spec", _SPEC), parts={"status": outcome(INGRESS_POINTS)}),
    "networking.k8s.io/v1/IngressClass": Rules(within("spec", _CLASS), fixed("spec.controller")),
}
