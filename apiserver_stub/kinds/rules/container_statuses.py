"""Validation of container statuses, which a node reports in the status of a pod."""

from collections.abc import Iterable, Mapping
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import GREATEST, between, each, record
from controller_manager.common.api.tree import Tree

# The list of statuses by list of containers.
_LISTS = {
    "containers": "containerStatuses",
    "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}
_STATUS: FieldPath = (None, "status")
_ALL = "RestartAllContainers"
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_LONGEST_MESSAGE = 1024
_ID = between(0, GREATEST)
_LINUX_USER = record({"uid": _ID, "gid": _ID, "supplementalGroups": each(_ID)})


def change_container_statuses(status: Tree, before: Tree, spec: Tree, errors: ErrorList) -> None:
    """Check an update of the container statuses of a pod with this spec."""
    system = (spec.get("os") or {}).get("name", "linux")
    for containers, name in _LISTS.items():
        statuses, at = status.get(name) or (), (_STATUS, name)
        known = {container.get("name"): container for container in reversed(spec.get(containers) or ())}
        _restarts(statuses, before.get(name) or (), _Restarts(containers, spec, known), at, errors)
        for index, one in enumerate(statuses):
            _user(one.get("user") or {}, system, ((at, index), "user"), errors)
            if containers == "ephemeralContainers":
                if one.get("allocatedResourcesStatus"):
                    errors.forbidden(((at, index), "allocatedResourcesStatus"), "may not be set for these containers")
            else:
                _devices(one, known.get(one.get("name")), (at, index), errors)


class _Restarts:
    """Whether terminated containers of one list of a pod are restarted (KEP-5307, KEP-5532)."""

    def __init__(self, containers: str, spec: Tree, known: Mapping[Any, Tree]) -> None:
        self._policy = spec.get("restartPolicy", "Always")
        self._known = known
        self._never = containers == "ephemeralContainers"
        self._all = not self._never and any(
            rule.get("action") == _ALL
            for name in ("containers", "initContainers")
            for container in spec.get(name) or ()
            for rule in container.get("restartPolicyRules") or ()
        )

    def allowed(self, name: Any, exit_code: int) -> bool:
        """Return whether a container that exited with this code may be restarted."""
        container = self._known.get(name)
        if self._all or container is None or self._never:
            return self._all
        if "restartPolicy" in container and _has_matching_rule(container, exit_code):
            return True
        policy = container.get("restartPolicy", self._policy)
        return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _has_matching_rule(container: Tree, exit_code: int) -> bool:
    """Return whether a restart rule matches. Every action of a rule restarts the container."""
    codes = (rule.get("exitCodes") or {} for rule in container.get("restartPolicyRules") or ())
    return any((exit_code in (one.get("values") or ())) == (one.get("operator") == "In") for one in codes if one)


def _restarts(new: Iterable[Tree], old: Iterable[Tree], restarts: _Restarts, at: FieldPath, errors: ErrorList) -> None:
    """Check that containers that have terminated for good are not running again."""
    running = {one.get("name") for one in new if "terminated" not in (one.get("state") or {})}
    for index, one in enumerate(old):
        ended = (one.get("state") or {}).get("terminated")
        if ended is None or one.get("name") not in running:
            continue
        if not restarts.allowed(one.get("name"), ended.get("exitCode", 0)):
            errors.forbidden(((at, index), "state"), "a container that ended does not run again")


def _user(user: Tree, system: str, at: FieldPath, errors: ErrorList) -> None:
    if "linux" not in user:
        return
    if system == "windows":
        errors.forbidden((at, "linux"), "cannot be set for a windows pod")
    elif system == "linux":
        _LINUX_USER(user["linux"], (at, "linux"), errors)


def _devices(status: Tree, container: Tree | None, at: FieldPath, errors: ErrorList) -> None:
    """Check the device health (KEP-4680): the container must request each resource."""
    reported = status.get("allocatedResourcesStatus") or ()
    asked = _asked(container) if container is not None and reported else None
    for index, resource in enumerate(reported):
        here, name = ((at, "allocatedResourcesStatus"), index), resource.get("name", "")
        if asked is not None and name not in asked:
            errors.invalid((here, "name"), name, "must be a resource or claim that the container requests")
        seen = set()
        for number, device in enumerate(resource.get("resources") or ()):
            _device(device, ((here, "resources"), number), errors)
            identity = device.get("resourceID", "")
            if identity in seen:
                errors.duplicate((((here, "resources"), number), "resourceID"), identity)
            seen.add(identity)


def _asked(container: Tree) -> set[str]:
    """Return the resources and claims that a container requests, named as in its status."""
    resources = container.get("resources") or {}
    claims = (
        f"claim:{claim.get('name', '')}" + (f"/{claim['request']}" if claim.get("request") else "")
        for claim in resources.get("claims") or ()
    )
    return {*claims, *(resources.get("requests") or ())}


def _device(device: Tree, at: FieldPath, errors: ErrorList) -> None:
    if device.get("health", "") not in _HEALTH:
        errors.unsupported((at, "health"), device.get("health", ""), _HEALTH)
    message = device.get("message")
    if message == "":
        errors.required((at, "message"), "must not be empty")
    elif message is not None and len(message.encode()) > _LONGEST_MESSAGE:
        errors.too_long((at, "message"), _LONGEST_MESSAGE)
