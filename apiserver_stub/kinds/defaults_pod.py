"""Default rows of Pods and of everything with a Pod template in it."""

import re

from apiserver_stub.kinds.rows import Rows, empty, under, when
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts

_TAG = re.compile(r":[^:/@]+$")
_FILE_MODE = 0o644
_SOURCE_FIELDS = frozenset({"name"})


def _pull_policy(container: Tree) -> str:
    """Always for `latest`, and for an image with neither tag nor digest; the others can't change."""
    name, digest, _ = container.get("image", "").partition("@")
    tag = _TAG.search(name)
    latest = tag[0] == ":latest" if tag else not digest
    return "Always" if latest else "IfNotPresent"


def _empty_dir(volume: Tree) -> Tree | None:
    return {} if volume.keys() <= _SOURCE_FIELDS else None


def _requests_from_limits(container: Tree) -> None:
    resources = container.get("resources", {})
    missing = {k: v for k, v in resources.get("limits", {}).items() if k not in resources.get("requests", {})}
    if missing:
        resources["requests"] = {**resources.get("requests", {}), **missing}


def _host_ports(spec: Tree) -> None:
    """On the host's network a container's port is the host's."""
    if not spec.get("hostNetwork"):
        return
    for _, container in dicts([*spec.get("containers", ()), *spec.get("initContainers", ())]):
        for _, port in dicts(container.get("ports")):
            if not port.get("hostPort"):
                port["hostPort"] = port.get("containerPort", 0)


_HTTP_GET: Rows = (("path", "/"), ("scheme", "HTTP"))
_HANDLER: Rows = (("httpGet", _HTTP_GET),)
_PROBE: Rows = (
    ("httpGet", _HTTP_GET), ("grpc", (("service", ""),)),
    ("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3),
)  # fmt: skip
_FIELD_REF: Rows = (("fieldRef", (("apiVersion", "v1"),)), ("resourceFieldRef", (("divisor", "0"),)))
_CONTAINER: Rows = (
    ("imagePullPolicy", _pull_policy),
    ("resources", empty),
    ("terminationMessagePath", "/dev/termination-log"),
    ("terminationMessagePolicy", "File"),
    ("ports", (("protocol", "TCP"),)),
    ("env", (("valueFrom", _FIELD_REF),)),
    ("livenessProbe", _PROBE), ("readinessProbe", _PROBE), ("startupProbe", _PROBE),
    ("lifecycle", (("postStart", _HANDLER), ("preStop", _HANDLER))),
)  # fmt: skip
PVC_SPEC: Rows = (("resources", empty), ("volumeMode", "Filesystem"))
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
    ("ephemeral", under("volumeClaimTemplate.spec", PVC_SPEC)),
)
POD_SPEC: Rows = (
    ("containers", _CONTAINER), ("initContainers", _CONTAINER), ("ephemeralContainers", _CONTAINER),
    ("volumes", _VOLUME),
    ("dnsPolicy", "ClusterFirst"),
    ("restartPolicy", "Always"),
    ("schedulerName", "default-scheduler"),
    ("securityContext", empty),
    ("terminationGracePeriodSeconds", 30),
    ("serviceAccountName", lambda spec: spec.get("serviceAccount") or None),
    ("serviceAccount", lambda spec: spec.get("serviceAccountName") or None),
    ("", _host_ports),
)  # fmt: skip
_REQUESTS: Rows = (("", _requests_from_limits),)
POD: Rows = (
    ("spec", (
        *POD_SPEC, ("enableServiceLinks", True), ("containers", _REQUESTS), ("initContainers", _REQUESTS),
    )),
)  # fmt: skip
TEMPLATE: Rows = (("template", (("metadata", empty), ("spec", POD_SPEC))),)

DEPLOYMENT: Rows = (
    ("replicas", 1),
    ("revisionHistoryLimit", 10),
    ("progressDeadlineSeconds", 600),
    ("strategy", empty),
    ("strategy", (
        ("type", "RollingUpdate"),
        ("rollingUpdate", when("type", ("RollingUpdate",), empty)),
        ("rollingUpdate", (("maxUnavailable", "25%"), ("maxSurge", "25%"))),
    )),
    *TEMPLATE,
)  # fmt: skip
DAEMON_SET: Rows = (
    ("revisionHistoryLimit", 10),
    ("updateStrategy", empty),
    ("updateStrategy", (
        ("type", "RollingUpdate"),
        ("rollingUpdate", when("type", ("RollingUpdate",), empty)),
        ("rollingUpdate", (("maxUnavailable", 1), ("maxSurge", 0))),
    )),
    *TEMPLATE,
)  # fmt: skip
STATEFUL_SET: Rows = (
    ("replicas", 1),
    ("podManagementPolicy", "OrderedReady"),
    ("revisionHistoryLimit", 10),
    ("serviceName", ""),
    ("updateStrategy", empty),
    ("updateStrategy", (
        ("type", "RollingUpdate"),
        ("rollingUpdate", when("type", ("RollingUpdate",), empty)),
        ("rollingUpdate", (("partition", 0),)),
    )),
    ("persistentVolumeClaimRetentionPolicy", empty),
    ("persistentVolumeClaimRetentionPolicy", (("whenDeleted", "Retain"), ("whenScaled", "Retain"))),
    ("volumeClaimTemplates", (
        ("apiVersion", "v1"), ("kind", "PersistentVolumeClaim"), ("spec", PVC_SPEC),
        ("status", empty), ("status", (("phase", "Pending"),)),
    )),
    *TEMPLATE,
)  # fmt: skip
JOB: Rows = (
    ("completions", lambda spec: 1 if spec.get("parallelism") is None else None),
    ("parallelism", 1),
    ("backoffLimit", lambda spec: 2**31 - 1 if "backoffLimitPerIndex" in spec else 6),
    ("completionMode", "NonIndexed"),
    ("manualSelector", False),
    ("podReplacementPolicy", lambda spec: "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"),
    ("suspend", False),
    *TEMPLATE,
)
CRON_JOB: Rows = (
    ("concurrencyPolicy", "Allow"),
    ("suspend", False),
    ("successfulJobsHistoryLimit", 3),
    ("failedJobsHistoryLimit", 1),
    ("jobTemplate", (("metadata", empty), ("spec", TEMPLATE))),
)
