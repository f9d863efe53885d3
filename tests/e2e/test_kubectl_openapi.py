"""OpenAPI and discovery as kubectl and the dynamic client use them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import kubernetes
import pytest
from kubernetes.dynamic import DynamicClient

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "odd"},
    "spec": {"containers": [{"name": "c", "image": "i", "bogus": 1}]},
}
COMPLAINT = 'unknown field "spec.containers[0].bogus"'


FIRST = (
    "pod.spec.containers", "deployment", "svc.spec.ports", "hpa.spec.metrics", "role.rules",
    "crd.spec.versions.schema.openAPIV3Schema",
)  # fmt: skip
# tests/apiserver_stub/apis/openapi/test_descriptions.py reads the descriptions of all of them.
DAILY = (
    "pod", "pod.metadata", "pod.metadata.ownerReferences", "pod.spec", "pod.spec.containers.env.valueFrom",
    "pod.spec.containers.livenessProbe", "pod.spec.containers.resources", "pod.spec.containers.securityContext",
    "pod.spec.affinity.podAntiAffinity", "pod.spec.tolerations", "pod.spec.volumes",
    "pod.spec.volumes.projected.sources", "pod.status.containerStatuses.state.terminated", "deployment.spec",
    "deployment.spec.strategy.rollingUpdate", "deployment.spec.template.spec", "deployment.status.conditions",
    "sts.spec", "ds.spec.updateStrategy", "job.spec.podFailurePolicy.rules", "cronjob.spec",
    "svc.status.loadBalancer.ingress", "pvc.spec", "pv.spec.csi", "pdb.spec", "ingress.spec.rules.http.paths",
    "netpol.spec.ingress.from", "configmap", "secret", "ns.status", "node.spec.taints", "node.status.nodeInfo", "sa",
    "rolebinding", "clusterrolebinding.subjects", "sc", "pc", "lease.spec", "event", "endpointslice.endpoints",
    "quota.spec", "limits.spec.limits", "csr.spec", "validatingwebhookconfiguration.webhooks.rules",
    "mutatingwebhookconfiguration.webhooks.clientConfig", "resourceclaim.spec.devices",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("pod",), {"KIND: Pod", "VERSION: v1", "spec <PodSpec>", "apiVersion <string>"}),
        (("pod.spec.containers.ports",), {"FIELD: ports <[]ContainerPort>", "containerPort <integer> -required-"}),
        (("pod.spec.restartPolicy",), {"FIELD: restartPolicy <string>"}),
        (("deployment", "--recursive"), {"GROUP: apps", "maxSurge <IntOrString>", "matchLabels <map[string]string>"}),
        (("hpa", "--api-version=autoscaling/v1"), {"GROUP: autoscaling", "VERSION: v1"}),
        (("hpa.spec", "--api-version=autoscaling/v1"), {"targetCPUUtilizationPercentage <integer>"}),
        (("hpa.spec",), {"metrics <[]MetricSpec>"}),
        (("svc.spec.ports.targetPort",), {"FIELD: targetPort <IntOrString>"}),
        (("cj", "--output=plaintext-openapiv2"), {"KIND: CronJob", "VERSION: batch/v1", "spec <Object> -required-"}),
        (("cj.spec", "--output=plaintext-openapiv2"), {"RESOURCE: spec <Object>", "schedule <string> -required-"}),
    ],
)
def test_explain(kubectl: Kubectl, arguments: tuple[str, ...], lines: set[str]) -> None:
    output = {" ".join(line.split()) for line in kubectl("explain", *arguments).splitlines()}
    assert lines <= output


@pytest.mark.parametrize("path", [*FIRST, *(pytest.param(path, marks=pytest.mark.long) for path in DAILY)])
def test_explain_describes_common_fields(kubectl: Kubectl, path: str) -> None:
    output = kubectl("explain", path)
    assert "DESCRIPTION:" in output
    assert [before for before, line in pairwise(output.splitlines()) if "<no description>" in line] == []


def test_explain_of_unknown_field_fails(kubectl_error: Kubectl) -> None:
    assert 'field "bogus" does not exist' in kubectl_error("explain", "pod.spec.bogus")


@pytest.mark.parametrize("level", ["true", "strict"])
@pytest.mark.parametrize("command", ["apply", "create"])
def test_unknown_fields_are_rejected(kubectl_error: Kubectl, namespace: str, command: str, level: str) -> None:
    """API concepts, Field validation, rule 3."""
    said = kubectl_error(command, "-n", namespace, f"--validate={level}", "-f", "-", stdin=POD)
    assert f"strict decoding error: {COMPLAINT}" in said


@pytest.mark.parametrize(("level", "warned"), [("warn", True), ("ignore", False), ("false", False)])
def test_unknown_fields_are_dropped(run: Any, namespace: str, level: str, warned: bool) -> None:
    """API concepts, Field validation, rules 2 and 3."""
    code, out, err = run("create", "-n", namespace, f"--validate={level}", "-f", "-", stdin=POD)
    assert (code, out) == (0, "pod/odd created\n")
    assert (COMPLAINT in err) == warned


def test_wide_resources(kubectl: Kubectl) -> None:
    rows = [" ".join(line.split()) for line in kubectl("api-resources", "-o", "wide").splitlines()]
    verbs = "create,delete,deletecollection,get,list,patch,update,watch"
    assert f"deployments deploy apps/v1 true Deployment {verbs} all" in rows


def test_root_lists_paths(kubectl: Kubectl) -> None:
    assert '"/apis/apps/v1"' in kubectl("get", "--raw", "/")


def test_dynamic_client_finds_every_resource(server: Any) -> None:
    api = kubernetes.config.new_client_from_config(str(server.kubeconfig))
    found = DynamicClient(api).resources
    assert {len(found.search(kind=kind)) for kind in ("Pod", "Deployment", "Lease")} == {1}
    scalers = found.search(kind="HorizontalPodAutoscaler")
    assert {one.api_version for one in scalers} == {"v1", "v2"}
    assert [one.api_version for one in scalers if one.preferred] == ["v2"]
    nodes = found.get(api_version="v1", kind="Node")
    assert nodes.get().kind == "NodeList"
