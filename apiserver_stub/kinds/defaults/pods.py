"""Defaults of Pods and of every kind with a Pod template."""

import re
from collections.abc import Callable, Mapping

from apiserver_stub.kinds.defaults.rows import Rows, empty, in_step, under, when
from controller_manager.common.api.pod_resources import container_total, parsed
from controller_manager.common.api.tree import Tree

# Set the requests of a Pod and its containers from their limits (KEP-2837 for the Pod's own).

_Amounts = Mapping[str, str]
_PAGES = "hugepages-"
_SHARED = frozenset({"cpu", "memory"})  # resources that a node may overcommit


def complete_resources(spec: Tree) -> None:
    """Set the requests of containers, then the Pod-level resources, in place."""
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.get("resources")
        if resources and "limits" in resources:
            _fill(resources, "requests", resources["limits"])
    if spec.get("resources"):
        _complete_pod_resources(spec, spec["resources"])


def _fill(resources: Tree, field: str, known: _Amounts) -> None:
    given = resources.get(field, {})
    if not known.keys() <= given.keys():
        resources[field] = {**known, **given}


def _complete_pod_resources(spec: Tree, resources: Tree) -> None:
    """Set the missing resources of a Pod with Pod-level resources. Limits of huge pages come from the containers,
    requests from the requests of the containers or else from the Pod's limits.
    """
    asked = resources.get("requests", {})
    if not asked and not resources.get("limits"):
        return
    pages = {k: v for k, v in total(spec, "limits").items() if k.startswith(_PAGES) and k not in asked}
    _fill(resources, "limits", pages)
    if "limits" in resources:
        _fill(resources, "requests", {k: v for k, v in total(spec, "requests").items() if k in _SHARED})
        limits = resources["limits"].items()
        _fill(resources, "requests", {k: v for k, v in limits if k in _SHARED or k.startswith(_PAGES)})


def total(spec: Tree, field: str) -> _Amounts:
    """Return the highest sum of `limits` or `requests` that the containers need at the same time."""
    found = container_total(spec, lambda container: parsed((container.get("resources") or {}).get(field)))
    return {name: str(quantity) for name, quantity in found.items()}


# An image reference: optional registry, path, optional tag and digest.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_FROM = rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_IMAGE = re.compile(
    rf"(?![0-9a-f]{{64}}\Z)(?:{_FROM}/)?{_PART}(?:/{_PART})*(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_FILE_MODE = 0o644
_SOURCE_FIELDS = frozenset({"name"})


def _pull_policy(field: str) -> Callable[[Tree], str]:
    """Return a rule for the pull policy: Always for the tag `latest` and for images with neither tag nor digest, else
    IfNotPresent.
    """

    def policy(parent: Tree) -> str:
        found = _IMAGE.fullmatch(parent.get(field, ""))
        latest = found is not None and (found["tag"] or ("latest" if not found["digest"] else "")) == "latest"
        return "Always" if latest else "IfNotPresent"

    return policy


def _empty_dir(volume: Tree) -> Tree | None:
    return {} if volume.keys() <= _SOURCE_FIELDS else None


def _host_ports(spec: Tree) -> None:
    """Set host ports to the container ports if the Pod uses the host network."""
    if not spec.get("hostNetwork"):
        return
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        for port in container.get("ports", ()):
            port.setdefault("hostPort", port.get("containerPort"))


def _grace(spec: Tree) -> None:
    """Set a negative grace period to 1 second. Templates are not changed."""
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1


def _partition(strategy: Tree) -> None:
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)


def _template_generation(metadata: Tree) -> None:
    """Add the template generation annotation of DaemonSets. The strategy updates its value."""
    metadata.setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "0")


_HTTP_GET: Rows = (("path", "/"), ("scheme", "HTTP"))
_HANDLER: Rows = (("httpGet", _HTTP_GET),)
_PROBE: Rows = (
    ("httpGet", _HTTP_GET), ("grpc", (("service", ""),)),
    ("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3),
)  # fmt: skip
_FIELD_REF: Rows = (("fieldRef", (("apiVersion", "v1"),)),)
_CONTAINER: Rows = (
    ("imagePullPolicy", _pull_policy("image")),
    ("terminationMessagePath", "/dev/termination-log"),
    ("terminationMessagePolicy", "File"),
    ("ports", (("protocol", "TCP"),)),
    ("env", (("valueFrom", _FIELD_REF),)),
    ("livenessProbe", _PROBE), ("readinessProbe", _PROBE), ("startupProbe", _PROBE),
    ("lifecycle", (("postStart", _HANDLER), ("preStop", _HANDLER))),
)  # fmt: skip
_PVC_SPEC: Rows = (("volumeMode", "Filesystem"),)
CLAIM: Rows = (
    ("spec", _PVC_SPEC),
    ("status", (("phase", "Pending"),)),
)
_PROJECTED: Rows = (
    ("downwardAPI", (("items", _FIELD_REF),)),
    ("serviceAccountToken", (("expirationSeconds", 3600),)),
)
_VOLUME: Rows = (
    ("emptyDir", _empty_dir),
    ("configMap", (("defaultMode", _FILE_MODE),)),
    ("secret", (("defaultMode", _FILE_MODE),)),
    ("downwardAPI", (("defaultMode", _FILE_MODE), ("items", _FIELD_REF))),
    ("projected", (("defaultMode", _FILE_MODE), ("sources", _PROJECTED))),
    ("hostPath", (("type", ""),)),
    ("image", (("pullPolicy", _pull_policy("reference")),)),
    ("ephemeral", under("volumeClaimTemplate.spec", _PVC_SPEC)),
)
_POD_SPEC: Rows = (
    ("containers", _CONTAINER), ("initContainers", _CONTAINER), ("ephemeralContainers", _CONTAINER),
    ("volumes", _VOLUME),
    ("dnsPolicy", "ClusterFirst"),
    ("restartPolicy", "Always"),
    ("schedulerName", "default-scheduler"),
    ("securityContext", empty),
    ("terminationGracePeriodSeconds", 30),
    ("serviceAccountName", lambda spec: spec.get("serviceAccount") or None),
    ("serviceAccount", lambda spec: spec.get("serviceAccountName") or None),
)  # fmt: skip
POD: Rows = (
    ("spec", (
        *_POD_SPEC, ("enableServiceLinks", True), ("", complete_resources), ("", _host_ports), ("", _grace),
    )),
    ("status", (("", in_step("podIP", "podIPs", "ip")),)),
)  # fmt: skip
TEMPLATE: Rows = (("template", (("spec", _POD_SPEC),)),)

DEPLOYMENT: Rows = (
    ("replicas", 1),
    ("revisionHistoryLimit", 10),
    ("progressDeadlineSeconds", 600),
    ("strategy", (
        ("type", "RollingUpdate"),
        ("rollingUpdate", when("type", ("RollingUpdate",), empty)),
        ("rollingUpdate", (("maxUnavailable", "25%"), ("maxSurge", "25%"))),
    )),
    *TEMPLATE,
)  # fmt: skip
DAEMON_SET: Rows = (
    ("revisionHistoryLimit", 10),
    ("updateStrategy", (
        ("type", "RollingUpdate"),
        ("rollingUpdate", when("type", ("RollingUpdate",), empty)),
        ("rollingUpdate", (("maxUnavailable", 1), ("maxSurge", 0))),
    )),
    *TEMPLATE,
)  # fmt: skip
DAEMON_SET_METADATA: Rows = (("", _template_generation),)
STATEFUL_SET: Rows = (
    ("replicas", 1),
    ("podManagementPolicy", "OrderedReady"),
    ("revisionHistoryLimit", 10),
    ("updateStrategy", (
        # `rollingUpdate` is only set if the type is absent too.
        ("rollingUpdate", lambda strategy: None if "type" in strategy else {}),
        ("type", "RollingUpdate"),
        ("", _partition),
    )),
    ("persistentVolumeClaimRetentionPolicy", empty),
    ("persistentVolumeClaimRetentionPolicy", (("whenDeleted", "Retain"), ("whenScaled", "Retain"))),
    ("volumeClaimTemplates", (
        ("apiVersion", "v1"), ("kind", "PersistentVolumeClaim"),
        ("spec", _PVC_SPEC), ("status", (("phase", "Pending"),)),
    )),
    *TEMPLATE,
)  # fmt: skip
_FAILURES: Rows = under("podFailurePolicy.rules.onPodConditions", (("status", "True"),))
JOB: Rows = (
    ("completions", lambda spec: 1 if spec.get("parallelism") is None else None),
    ("parallelism", 1),
    ("backoffLimit", lambda spec: 2**31 - 1 if "backoffLimitPerIndex" in spec else 6),
    ("completionMode", "NonIndexed"),
    ("manualSelector", False),
    ("podReplacementPolicy", lambda spec: "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"),
    ("suspend", False),
    *_FAILURES,
    *TEMPLATE,
)
CRON_JOB: Rows = (
    ("concurrencyPolicy", "Allow"),
    ("suspend", False),
    ("successfulJobsHistoryLimit", 3),
    ("failedJobsHistoryLimit", 1),
    ("jobTemplate", (("spec", (*_FAILURES, *TEMPLATE)),)),
)
