"""The fields a field selector may name beyond `metadata.name` and `metadata.namespace`, and where they are stored."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from apiserver_stub.kinds.resource_info import SelectableField

_OBJECT = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")


def _as_is(paths: Iterable[str], absent: str = "") -> dict[str, SelectableField]:
    return {path: SelectableField(path, absent=absent) for path in paths}


# By `plural.group` of the kind, then by the path that selectors name.
SELECTABLE: Mapping[str, Mapping[str, SelectableField]] = MappingProxyType({
    "certificatesigningrequests.certificates.k8s.io": _as_is(("spec.signerName",)),
    "events": {
        **_as_is(f"involvedObject.{name}" for name in _OBJECT),
        **_as_is(("reason", "reportingComponent", "type")),
        "source": SelectableField("source.component", instead="reportingComponent"),
    },
    "events.events.k8s.io": {
        **{f"regarding.{name}": SelectableField(f"involvedObject.{name}") for name in _OBJECT},
        **_as_is(("reason", "type")),
        "reportingController": SelectableField("reportingComponent"),
    },
    "jobs.batch": {"status.successful": SelectableField("status.succeeded", absent="0")},
    "namespaces": _as_is(("status.phase",)),
    "nodes": _as_is(("spec.unschedulable",), absent="false"),
    "pods": {
        **_as_is((
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
        )),
        **_as_is(("spec.hostNetwork",), absent="false"),
    },
    "replicasets.apps": _as_is(("status.replicas",), absent="0"),
    "replicationcontrollers": _as_is(("status.replicas",), absent="0"),
    "resourceslices.resource.k8s.io": _as_is(("spec.driver", "spec.nodeName")),
    "secrets": _as_is(("type",)),
    "services": _as_is(("spec.clusterIP", "spec.type")),
})  # fmt: skip
