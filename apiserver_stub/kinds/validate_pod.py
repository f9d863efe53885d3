"""The rules of Pods and Pod templates: containers, ports, volumes, and what of a running Pod may change."""

from collections.abc import Iterable, Iterator
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import forbidden, invalid, not_found, required, unsupported
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts
from apiserver_stub.kinds.validate_common import port, port_or_name, unique, unique_in
from apiserver_stub.kinds.validate_metadata import check_annotations, check_labels
from controller_manager.api.errors import Cause

_LISTS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_MAY_CHANGE = frozenset({
    "activeDeadlineSeconds", "ephemeralContainers", "nodeSelector", "schedulingGates", "tolerations",
    "serviceAccount", "terminationGracePeriodSeconds", "containers", "initContainers", "affinity",
})  # fmt: skip
_UPDATES = (
    "pod updates may only change `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.terminationGracePeriodSeconds` (to 1, from below 0) "
    "and `spec.tolerations` (by addition)"
)


def check_pod(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a Pod."""
    spec = new.get("spec")
    if not isinstance(spec, dict):
        yield required("spec")
        return
    yield from check_pod_spec(spec, "spec")
    if old is None and spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if old is not None:
        yield from _pod_update(spec, old.get("spec", {}))


def check_template(
    template: Any, field: str, policies: tuple[str, ...] = ("Always",), claimed: Iterable[str] = ()
) -> Iterator[Cause]:
    """All problems of a Pod template whose Pods may have one of the restart policies; `claimed` are the volumes its
    controller adds.
    """
    if not isinstance(template, dict):
        return
    metadata = template.get("metadata") or {}
    yield from check_labels(metadata.get("labels"), f"{field}.metadata.labels")
    yield from check_annotations(metadata.get("annotations"), f"{field}.metadata.annotations")
    spec = template.get("spec")
    if not isinstance(spec, dict):
        yield required(f"{field}.spec.containers")
        return
    yield from check_pod_spec(spec, f"{field}.spec", claimed)
    policy = spec.get("restartPolicy")
    if policy and policy not in policies:
        yield unsupported(f"{field}.spec.restartPolicy", policy, policies)
    if "ephemeralContainers" in spec:
        yield forbidden(f"{field}.spec.ephemeralContainers", "not allowed in a pod template")


def check_pod_spec(spec: Tree, field: str, claimed: Iterable[str] = ()) -> Iterator[Cause]:
    """All problems of a Pod's spec, wherever it stands."""
    if spec.get("containers") == []:
        yield required(f"{field}.containers")
    volumes = {*claimed, *(v.get("name") for _, v in dicts(spec.get("volumes")))}
    containers = [(f"{field}.{key}[{i}]", c) for key in _LISTS if key in spec for i, c in dicts(spec[key])]
    yield from unique((f"{here}.name", container.get("name") or None) for here, container in containers)
    for here, container in containers:
        yield from _container(container, here, volumes)
    yield from _volumes(spec.get("volumes"), f"{field}.volumes")
    for name, low in (("terminationGracePeriodSeconds", 0), ("activeDeadlineSeconds", 1)):
        value = spec.get(name)
        if isinstance(value, int) and value < low:
            yield invalid(f"{field}.{name}", value, f"must be greater than or equal to {low}")
    for name in ("hostname", "subdomain"):
        if spec.get(name) and (why := names.label(spec[name])):
            yield invalid(f"{field}.{name}", spec[name], why)
    if spec.get("serviceAccountName") and (why := names.subdomain(spec["serviceAccountName"])):
        yield invalid(f"{field}.serviceAccountName", spec["serviceAccountName"], why)
    yield from check_labels(spec.get("nodeSelector"), f"{field}.nodeSelector")


def _container(container: Tree, field: str, volumes: set[Any]) -> Iterator[Cause]:
    name = container.get("name")
    if name and (why := names.label(name)):
        yield invalid(f"{field}.name", name, why)
    image = container.get("image", "")
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid(f"{field}.image", image, "must not have leading or trailing whitespace")
    if "ports" in container:
        yield from _ports(container["ports"], f"{field}.ports")
    if "env" in container:
        yield from _environment(container["env"], f"{field}.env")
    if "volumeMounts" in container:
        yield from _mounts(container["volumeMounts"], f"{field}.volumeMounts", volumes)
    for probe in _PROBES:
        if probe in container:
            yield from _probe(container[probe], f"{field}.{probe}")


def _ports(ports: Any, field: str) -> Iterator[Cause]:
    for i, entry in dicts(ports):
        if entry.get("containerPort") == 0:
            yield required(f"{field}[{i}].containerPort")
        else:
            yield from port(entry.get("containerPort"), f"{field}[{i}].containerPort")
        if entry.get("hostPort"):
            yield from port(entry["hostPort"], f"{field}[{i}].hostPort")
        if entry.get("name") and (why := names.port_name(entry["name"])):
            yield invalid(f"{field}[{i}].name", entry["name"], why)
    yield from unique_in(ports, "name", field)


def _environment(variables: list[Tree], field: str) -> Iterator[Cause]:
    for i, variable in enumerate(variables):
        name = variable.get("name")
        if name and (why := names.env_name(name)):
            yield invalid(f"{field}[{i}].name", name, why)
        if "valueFrom" in variable:
            yield from _value_from(variable, f"{field}[{i}].valueFrom")


def _value_from(variable: Tree, field: str) -> Iterator[Cause]:
    if variable.get("value"):
        yield invalid(field, "", "may not be specified when `value` is not empty")
    if len(variable["valueFrom"]) != 1:
        yield invalid(field, "", "must have exactly one source")


def _mounts(mounts: Any, field: str, volumes: set[Any]) -> Iterator[Cause]:
    for i, mount in dicts(mounts):
        if mount.get("name") and mount["name"] not in volumes:
            yield not_found(f"{field}[{i}].name", mount["name"])
    yield from unique_in(mounts, "mountPath", field)


def _probe(probe: Tree, field: str) -> Iterator[Cause]:
    handlers = [name for name in _HANDLERS if name in probe]
    if not handlers:
        yield required(field, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{field}.{extra}", "may not specify more than one handler type")
    for name in _COUNTS:
        value = probe.get(name)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{field}.{name}", value, "must be greater than or equal to 0")
    for name in ("httpGet", "tcpSocket"):
        if isinstance(probe.get(name), dict):
            yield from port_or_name(probe[name].get("port"), f"{field}.{name}.port")


def _volumes(volumes: Any, field: str) -> Iterator[Cause]:
    for i, volume in dicts(volumes):
        name = volume.get("name")
        if name and (why := names.label(name)):
            yield invalid(f"{field}[{i}].name", name, why)
        sources = sorted(volume.keys() - {"name"})
        if not sources:
            yield required(f"{field}[{i}]", "must specify a volume type")
        for extra in sources[1:]:
            yield forbidden(f"{field}[{i}].{extra}", "may not specify more than 1 volume type")
    yield from unique_in(volumes, "name", field)


def _pod_update(new: Tree, old: Tree) -> Iterator[Cause]:
    if new != old and _fixed(new, old) != _fixed(old, old):
        yield forbidden("spec", _UPDATES)
    deadline, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if before is not None and (deadline is None or deadline > before):
        yield invalid("spec.activeDeadlineSeconds", deadline, "must be less than or equal to previous value")
    kept = new.get("tolerations", ())
    if any(toleration not in kept for toleration in old.get("tolerations", ())):
        yield forbidden("spec.tolerations", "existing toleration can not be removed")
    gates = [gate.get("name") for _, gate in dicts(old.get("schedulingGates"))]
    for i, gate in dicts(new.get("schedulingGates")):
        if gate.get("name") not in gates:
            yield forbidden(f"spec.schedulingGates[{i}]", "only deletion is allowed")


def _fixed(spec: Tree, old: Tree) -> Tree:
    """The part of a spec that an update may not change; a Pod held by gates may still be steered."""
    fixed: Tree = {name: value for name, value in spec.items() if name not in _MAY_CHANGE}
    if not old.get("schedulingGates"):
        fixed.update({name: spec.get(name) for name in ("affinity", "nodeSelector")})
    if not old.get("nodeName"):
        fixed.pop("nodeName", None)  # a scheduler sets it, once
    for key in ("containers", "initContainers"):
        fixed[key] = [{k: v for k, v in container.items() if k != "image"} for _, container in dicts(spec.get(key))]
    grace = spec.get("terminationGracePeriodSeconds")
    before = old.get("terminationGracePeriodSeconds")
    loosened = grace == 1 and isinstance(before, int) and before < 0
    fixed["terminationGracePeriodSeconds"] = before if loosened else grace
    return fixed


def check_pod_template(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a PodTemplate, which may hold Pods of any restart policy."""
    yield from check_template(new.get("template"), "template", ("Always", "Never", "OnFailure"))
