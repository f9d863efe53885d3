"""The fields a field selector may name beyond `metadata.name` and `metadata.namespace`, and where they are stored."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

_OBJECT = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")


def _as_is(paths: Iterable[str]) -> dict[str, str]:
    return {path: path for path in paths}


# By `plural.group` of the kind: selectable path -> path in the stored object.
SELECTABLE: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "certificatesigningrequests.certificates.k8s.io": _as_is(("spec.signerName",)),
    "events": {
        **_as_is(f"involvedObject.{name}" for name in _OBJECT),
        **_as_is(("reason", "reportingComponent", "type")),
        "source": "source.component",
    },
    "events.events.k8s.io": {
        **{f"regarding.{name}": f"involvedObject.{name}" for name in _OBJECT},
        **_as_is(("reason", "type")),
        "reportingController": "reportingComponent",
    },
    "jobs.batch": {"status.successful": "status.succeeded"},
    "namespaces": _as_is(("status.phase",)),
    "nodes": _as_is(("spec.unschedulable",)),
    "pods": _as_is((
        "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
    )),
    "replicasets.apps": _as_is(("status.replicas",)),
    "replicationcontrollers": _as_is(("status.replicas",)),
    "resourceslices.resource.k8s.io": _as_is(("spec.driver", "spec.nodeName")),
    "secrets": _as_is(("type",)),
    "services": _as_is(("spec.clusterIP", "spec.type")),
})  # fmt: skip

# Where a selector looks when there is nothing at the stored path.
INSTEAD: Mapping[str, str] = MappingProxyType({"source.component": "reportingComponent"})

# What a selector compares with when the stored path is absent; the empty text for every other path.
ABSENT: Mapping[str, str] = MappingProxyType(
    {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0", "status.succeeded": "0"}
)
