"""kubectl's typed commands, which use protobuf: objects are created and read as with JSON."""

import json
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes import config

from apiserver_stub.encode.protobuf import MEDIA_TYPE, decode
from controller_manager.common.api.protobuf.wire import fields
from controller_manager.common.base.plain_yaml import without_nulls

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]

PROTOBUF = "Content-Type: application/vnd.kubernetes.protobuf"
# Set by the server, and unique to each object.
GIVEN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
ADDRESSES = ("clusterIP", "clusterIPs")


def create(run: Any, *arguments: str) -> Any:
    """Create an object, with request and response in protobuf; return what kubectl printed."""
    code, found, said = run("-v=8", "create", "-o", "json", *arguments)
    assert code == 0, said
    sent, _, answered = said.partition("POST")[2].partition("Response")
    assert PROTOBUF in sent, said
    assert PROTOBUF in answered, said
    return without_nulls(json.loads(found))


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """An object without the parts that are unique."""
    tree = deepcopy(found)
    for part, names in (("metadata", GIVEN), ("spec", ADDRESSES)):
        for name in names:
            tree.get(part, {}).pop(name, None)
    for port in tree.get("spec", {}).get("ports", ()):
        port.pop("nodePort", None)
    return tree


CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "PriorityClass"}


def collection_path(tree: dict[str, Any], namespace: str) -> str:
    """The collection path of a kind."""
    version, kind = tree["apiVersion"], tree["kind"]
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    inside = "" if kind in CLUSTER_WIDE else f"/namespaces/{namespace}"
    return f"/{'apis' if '/' in version else 'api'}/{version}{inside}/{plural}"


@pytest.mark.since(32)
@pytest.mark.parametrize(
    "command",
    [
        "configmap made --from-literal=a=b --from-literal=empty=",
        "secret generic made --from-literal=a=b --type=example.com/key",
        "secret docker-registry made --docker-server=r --docker-username=u --docker-password=p",
        "deployment made --image=web:1 --replicas=0 --port=80",
        "service clusterip made --tcp=80:8080 --tcp=443:named",
        "service clusterip made --clusterip=None",
        "service nodeport made --tcp=80",
        "service externalname made --external-name=a.example",
        "serviceaccount made",
        "role made --verb=get,list --resource=pods,deployments.apps --resource-name=one",
        "rolebinding made --role=r --serviceaccount=n:s --group=g --user=u",
        "clusterrole made --verb=get --non-resource-url=/healthz",
        "clusterrole made --aggregation-rule=a=b",
        "clusterrolebinding made --clusterrole=c --user=u",
        "cronjob made --image=i --schedule=1_*_*_*_* --restart=Never -- date -u",
        "ingress made --class=c --rule=a.example/*=web:80,tls=cert --default-backend=web:http",
        "poddisruptionbudget made --selector=a=b --min-available=0",
        "poddisruptionbudget made --selector=a=b --max-unavailable=50%",
        "quota made --hard=pods=3,cpu=1500m,memory=2Gi --scopes=NotTerminating",
        "priorityclass made --value=0 --preemption-policy=Never",
        "priorityclass made --value=-7 --description=low",
    ],
)
def test_create(run: Any, kubectl: Kubectl, admin: Any, namespace: str, command: str) -> None:
    """Objects sent in protobuf and in JSON become equal."""
    options, _, program = command.partition(" -- ")
    arguments = [word.replace("_", " ") for word in options.split()]
    after = ["--", *program.split()] if program else []
    answered = create(run, *arguments, "-n", namespace, *after)
    in_json = json.loads(
        kubectl("create", *arguments, "-n", namespace, "--dry-run=client", "-o", "json", "--validate=false", *after)
    )
    folder = collection_path(in_json, namespace)
    as_protobuf = admin.ask("GET", f"{folder}/made")
    as_protobuf["metadata"].pop("managedFields", None)  # kubectl does not show them
    assert answered == without_nulls(as_protobuf)
    admin.ask("DELETE", f"{folder}/made")
    as_json = admin.ask("POST", folder, in_json)
    admin.ask("DELETE", f"{folder}/made")
    assert plain(as_protobuf) == plain(as_json)


@pytest.mark.since(32)
def test_namespace_and_job_from_cron_job(run: Any, kubectl: Kubectl, namespace: str) -> None:
    create(run, "namespace", "shop")
    assert kubectl("get", "namespace", "shop", "-o", "jsonpath={.status.phase}") == "Active"
    create(run, "cronjob", "nightly", "-n", namespace, "--image=i", "--schedule=1 * * * *", "--", "date")
    create(run, "job", "now", "-n", namespace, "--from=cronjob/nightly")
    job = json.loads(kubectl("get", "job", "now", "-n", namespace, "-o", "json"))
    assert job["metadata"]["ownerReferences"][0]["name"] == "nightly"
    assert job["metadata"]["ownerReferences"][0]["controller"] is True
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["date"]


@pytest.mark.since(32)
def test_autoscaler(kubectl: Kubectl, run: Any, namespace: str) -> None:
    create(run, "deployment", "web", "-n", namespace, "--image=i")
    kubectl("autoscale", "deployment", "web", "-n", namespace, "--min=2", "--max=3", "--cpu-percent=50")
    spec = json.loads(kubectl("get", "horizontalpodautoscalers.v1.autoscaling", "web", "-n", namespace, "-o", "json"))[
        "spec"
    ]
    assert spec == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 50,
    }


def test_certificate_request_is_approved(kubectl: Kubectl) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    spec = {
        "request": b64encode(asked.public_bytes(serialization.Encoding.PEM)).decode(),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
    }
    wanted = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    kubectl("create", "-f", "-", stdin={**wanted, "metadata": {"name": "someone"}, "spec": spec})
    kubectl("certificate", "approve", "someone")
    found = json.loads(kubectl("get", "csr", "someone", "-o", "json"))
    assert found["status"]["conditions"][0]["type"] == "Approved"
    assert found["spec"]["request"] == spec["request"]
    assert found["spec"]["usages"] == ["client auth"]


@pytest.mark.since(28)
def test_reviews(kubectl: Kubectl) -> None:
    user = json.loads(kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert (user["username"], "system:masters" in user["groups"]) == ("kubernetes-admin", True)
    assert kubectl("auth", "can-i", "create", "pods") == "yes"


def test_errors_in_protobuf_are_shown(kubectl_error: Kubectl, namespace: str) -> None:
    said = kubectl_error("create", "configmap", "Bad_Name", "-n", namespace)
    assert 'metadata.name: Invalid value: "Bad_Name"' in said
    said = kubectl_error("create", "quota", "made", "-n", "nowhere", "--hard=pods=1")
    assert said.endswith('namespaces "nowhere" not found')


@pytest.fixture
def ask(server: Any) -> Callable[..., Any]:
    """GET over HTTP as the administrator: the unread response."""
    client = config.new_client_from_config(str(server.kubeconfig))

    def get(path: str, accept: str, **query: str) -> Any:
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        url = client.configuration.host + path
        return client.rest_client.pool_manager.request("GET", url, fields=query, headers=headers, preload_content=False)

    return get


def test_list_and_following_watch(ask: Any, kubectl: Kubectl, namespace: str) -> None:
    """Like an informer; watch events come at once, each with its size before it."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("a", "b"):
        kubectl("create", "configmap", name, "-n", namespace)
    listed = decode(ask(path, MEDIA_TYPE).data, "", "")
    assert listed["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    version = listed["metadata"]["resourceVersion"]
    stream = ask(path, f"{MEDIA_TYPE};stream=watch", watch="1", resourceVersion=version, timeoutSeconds="20")
    for name in ("first", "second"):
        kubectl("create", "configmap", name, "-n", namespace)
        size = int.from_bytes(stream.read(4), "big")
        event = dict(fields(stream.read(size)))
        [(_, shown)] = fields(event[2 << 3 | 2])
        assert event[1 << 3 | 2] == b"ADDED"
        assert decode(shown, "", "")["metadata"]["name"] == name
    stream.close()
