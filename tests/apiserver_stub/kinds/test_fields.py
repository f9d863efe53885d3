"""The fields that a field selector may name."""

import pytest

from apiserver_stub.kinds.registry import built_in

KINDS = built_in()
POD = "spec.hostNetwork spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName"
REFERENCE = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")


@pytest.mark.parametrize(
    ("group", "plural", "expected"),
    [
        ("", "pods", f"{POD} status.nominatedNodeName status.phase status.podIP status.podIPs"),
        ("", "nodes", "spec.unschedulable"),
        ("", "namespaces", "status.phase"),
        ("", "secrets", "type"),
        ("", "services", "spec.clusterIP spec.type"),
        ("", "replicationcontrollers", "status.replicas"),
        ("", "configmaps", ""),
        ("apps", "deployments", ""),
        ("batch", "jobs", "status.successful"),
        ("certificates.k8s.io", "certificatesigningrequests", "spec.signerName"),
        ("resource.k8s.io", "resourceslices", "spec.driver spec.nodeName"),
        ("", "events", " ".join(f"involvedObject.{n}" for n in REFERENCE) + " reason reportingComponent source type"),
        ("events.k8s.io", "events", "reason " + " ".join(f"regarding.{n}" for n in REFERENCE)
                                    + " reportingController type"),
    ],
)  # fmt: skip
def test_selectable_fields_of_kind(group: str, plural: str, expected: str) -> None:
    kind = KINDS.find(group, "v1", plural)
    assert kind is not None
    assert sorted(kind.fields) == sorted(expected.split())


def test_absent_fields_have_defaults_in_selectors() -> None:
    fields = {(kind.name, path): field for kind in KINDS.all() for path, field in kind.fields.items()}
    absent = {where: field.absent for where, field in fields.items() if field.absent}
    assert absent == {
        ("jobs.batch", "status.successful"): "0",
        ("nodes", "spec.unschedulable"): "false",
        ("pods", "spec.hostNetwork"): "false",
        ("replicasets.apps", "status.replicas"): "0",
        ("replicationcontrollers", "status.replicas"): "0",
    }
    assert {where: field.instead for where, field in fields.items() if field.instead} == {
        ("events", "source"): "reportingComponent"
    }
