"""kubectl create, run, expose, set, label, scale, cordon, delete: imperative writes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]


@pytest.fixture
def get(kubectl: Kubectl, namespace: str) -> Callable[[str, str], str]:
    """A field of an object in the namespace of the test."""

    def field(what: str, path: str) -> str:
        return kubectl("get", what, "-n", namespace, "-o", f"jsonpath={{{path}}}")

    return field


@pytest.fixture
def create(run: Any, namespace: str) -> Callable[..., tuple[int, str, str]]:
    """`kubectl create` in the namespace of the test."""

    def made(*arguments: str) -> tuple[int, str, str]:
        done: tuple[int, str, str] = run("create", *arguments[:2], "-n", namespace, *arguments[2:])
        return done

    return made


@pytest.mark.parametrize(
    ("command", "said", "path", "value"),
    [
        ("configmap made --from-literal=a=b", "configmap/made", ".data", '{"a":"b"}'),
        ("secret generic made --from-literal=a=b", "secret/made", ".data.a", "Yg=="),
        ("secret docker-registry made --docker-server=r --docker-username=u --docker-password=p", "secret/made",
         ".type", "kubernetes.io/dockerconfigjson"),
        ("deployment made --image=web:1 --replicas=2 --port=80", "deployment.apps/made", ".spec.selector.matchLabels",
         '{"app":"made"}'),
        ("service clusterip made --tcp=80:8080", "service/made", ".spec.ports[0].targetPort", "8080"),
        ("service nodeport made --tcp=80", "service/made", ".spec.type", "NodePort"),
        ("service externalname made --external-name=a.example", "service/made", ".spec.externalName", "a.example"),
        ("job made --image=i -- date -u", "job.batch/made", ".spec.template.spec.containers[0].command",
         '["date","-u"]'),
        ("cronjob made --image=i --schedule=1_*_*_*_*", "cronjob.batch/made", ".spec.schedule", "1 * * * *"),
        ("serviceaccount made", "serviceaccount/made", ".metadata.name", "made"),
        ("role made --verb=get,list --resource=pods,deployments.apps", "role.rbac.authorization.k8s.io/made",
         ".rules[*].resources[0]", "pods deployments"),
        ("rolebinding made --role=r --serviceaccount=n:s --group=g", "rolebinding.rbac.authorization.k8s.io/made",
         ".subjects[*].name", "g s"),
        ("quota made --hard=pods=3", "resourcequota/made", ".spec.hard.pods", "3"),
        ("poddisruptionbudget made --selector=a=b --min-available=1", "poddisruptionbudget.policy/made",
         ".spec.minAvailable", "1"),
        ("ingress made --rule=a.example/*=web:80", "ingress.networking.k8s.io/made",
         ".spec.rules[0].http.paths[0].pathType", "Prefix"),
    ],
)  # fmt: skip
def test_create(
    create: Any, run: Any, get: Any, namespace: str, command: str, said: str, path: str, value: str
) -> None:
    before, _, after = command.partition(" -- ")
    arguments = [word.replace("_", " ") for word in before.split()]
    arguments += ["--", *after.split()] if after else []
    assert create(*arguments) == (0, f"{said} created\n", "")
    assert get(said, path) == value
    code, _, complaint = create(*arguments)
    assert (code, complaint.strip().endswith('"made" already exists')) == (1, True)


def test_namespace_terminates_when_deleted(kubectl: Kubectl, kubectl_error: Kubectl, namespace: str) -> None:
    said = kubectl_error("create", "namespace", namespace)
    assert said == f'Error from server (AlreadyExists): namespaces "{namespace}" already exists'
    assert kubectl("delete", "namespace", namespace, "--wait=false").startswith(f'namespace "{namespace}" deleted')
    assert kubectl("get", "namespace", namespace, "--no-headers").split()[1] == "Terminating"
    said = kubectl_error("run", "late", "-n", namespace, "--image=i")
    assert f"unable to create new content in namespace {namespace} because it is being terminated" in said


def test_invalid_name_is_rejected(kubectl_error: Kubectl) -> None:
    said = kubectl_error("create", "namespace", "No Good")
    assert said.startswith('The Namespace "No Good" is invalid: ')
    assert 'metadata.name: Invalid value: "No Good": ' in said


def test_create_needs_an_existing_namespace(kubectl_error: Kubectl) -> None:
    said = kubectl_error("run", "lost", "-n", "nowhere", "--image=i")
    assert said == 'Error from server (NotFound): namespaces "nowhere" not found'


def test_create_reports_all_problems(kubectl_error: Kubectl, kubectl: Kubectl, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "Bad_Name", "namespace": namespace},
        "spec": {"containers": [{"name": "c"}], "restartPolicy": "Sometimes"},
    }
    said = kubectl_error("create", "--validate=false", "-f", "-", stdin=pod)
    assert said.startswith('The Pod "Bad_Name" is invalid: ')
    assert "metadata.name: Invalid value" in said
    assert "spec.containers[0].image: Required value" in said
    assert 'spec.restartPolicy: Unsupported value: "Sometimes"' in said
    assert kubectl("get", "pods", "-n", namespace) == ""


def test_names_are_generated(kubectl: Kubectl, namespace: str) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "note-", "namespace": namespace}}
    names = {kubectl("create", "-f", "-", "-o", "name", stdin=wanted) for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("configmap/note-") and len(name) == len("configmap/note-") + 5 for name in names)


def test_run_and_expose(kubectl: Kubectl, get: Any, namespace: str) -> None:
    run = ("run", "web", "-n", namespace, "--image=web:1", "--port=80", "--labels=app=web", "--env=A=B")
    assert kubectl(*run) == "pod/web created"
    assert (
        kubectl("expose", "pod", "web", "-n", namespace, "--name=front", "--target-port=http")
        == "service/front exposed"
    )
    assert get("service/front", ".spec.selector") == '{"app":"web"}'
    assert get("service/front", ".spec.ports[0]") == '{"port":80,"protocol":"TCP","targetPort":"http"}'
    said = kubectl("run", "other", "-n", namespace, "--image=i", "--port=1", "--expose")
    assert said.splitlines() == ["service/other created", "pod/other created"]


def test_set_and_rollout_change_the_template(kubectl: Kubectl, create: Any, get: Any, namespace: str) -> None:
    template = ".spec.template.spec.containers[0]"
    create("deployment", "web", "--image=web:1")
    web = ("deployment/web", "-n", namespace)
    assert kubectl("set", "image", *web, "web=web:2") == "deployment.apps/web image updated"
    assert kubectl("set", "env", *web, "A=B") == "deployment.apps/web env updated"
    assert kubectl("set", "resources", *web, "--limits=cpu=1") == "deployment.apps/web resource requirements updated"
    assert get("deployment/web", f"{template}.image") == "web:2"
    assert get("deployment/web", f"{template}.env") == '[{"name":"A","value":"B"}]'
    assert get("deployment/web", f"{template}.resources.limits.cpu") == "1"
    assert get("deployment/web", ".metadata.generation") == "4"
    assert kubectl("rollout", "restart", *web) == "deployment.apps/web restarted"
    assert "restartedAt" in get("deployment/web", ".spec.template.metadata.annotations")
    assert kubectl("rollout", "pause", *web) == "deployment.apps/web paused"
    assert get("deployment/web", ".spec.paused") == "true"
    assert kubectl("autoscale", *web, "--max=3", "--min=2").endswith("/web autoscaled")
    assert get("hpa/web", ".spec.maxReplicas") == "3"


def test_labels_and_annotations(kubectl: Kubectl, kubectl_error: Kubectl, get: Any, namespace: str) -> None:
    kubectl("run", "web", "-n", namespace, "--image=i")
    web = ("pod", "web", "-n", namespace)
    assert kubectl("label", *web, "tier=front") == "pod/web labeled"
    assert (
        kubectl_error("label", *web, "tier=back")
        == "error: 'tier' already has a value (front), and --overwrite is false"
    )
    assert kubectl("label", *web, "tier=back", "--overwrite") == "pod/web labeled"
    assert kubectl("label", "pods", "--all", "-n", namespace, "x=y") == "pod/web labeled"
    assert get("pod/web", ".metadata.labels") == '{"run":"web","tier":"back","x":"y"}'
    assert kubectl("label", *web, "tier-") == "pod/web unlabeled"
    assert kubectl("annotate", *web, "note=some text, with: signs").startswith("pod/web annotate")
    assert get("pod/web", ".metadata.annotations") == '{"note":"some text, with: signs"}'
    kubectl("annotate", *web, "note-")
    assert get("pod/web", ".metadata.annotations.note") == ""
    assert "the object has been modified" in kubectl_error("label", *web, "stale=yes", "--resource-version=1")


@pytest.mark.parametrize("what", ["deployment.apps", "statefulset.apps", "replicaset.apps", "replicationcontroller"])
def test_scale(kubectl: Kubectl, kubectl_error: Kubectl, get: Any, namespace: str, what: str) -> None:
    kind = {"deployment": "Deployment", "statefulset": "StatefulSet", "replicaset": "ReplicaSet"}.get(
        what.split(".")[0]
    )
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: dict[str, Any] = {
        "replicas": 1,
        "template": template,
        "selector": {"matchLabels": {"a": "b"}} if kind else {"a": "b"},
    }
    wanted = {
        "apiVersion": "apps/v1" if kind else "v1",
        "kind": kind or "ReplicationController",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": spec,
    }
    kubectl("create", "-f", "-", "--validate=false", stdin=wanted)
    web = (what, "web", "-n", namespace)
    assert kubectl("scale", *web, "--replicas=3") == f"{what}/web scaled"
    assert get(f"{what}/web", ".spec.replicas") == "3"
    said = kubectl_error("scale", *web, "--replicas=9", "--current-replicas=2")
    assert said == "error: Expected replicas to be 2, was 3"
    assert kubectl("scale", *web, "--replicas=0", "--current-replicas=3") == f"{what}/web scaled"
    assert get(f"{what}/web", ".spec.replicas") == "0"
    scale = json.loads(kubectl("get", *web, "--subresource=scale", "-o", "json"))
    assert (scale["kind"], scale["apiVersion"], scale["status"]["selector"]) == ("Scale", "autoscaling/v1", "a=b")


def test_nodes_are_cordoned_and_tainted(kubectl: Kubectl, kubectl_error: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
    assert kubectl("cordon", "worker") == "node/worker cordoned"
    assert kubectl("cordon", "worker") == "node/worker already cordoned"
    assert kubectl("get", "node", "worker", "--no-headers").split()[1] == "Unknown,SchedulingDisabled"
    assert kubectl("uncordon", "worker") == "node/worker uncordoned"
    assert kubectl("taint", "nodes", "worker", "k=v:NoExecute") == "node/worker tainted"
    taints = json.loads(kubectl("get", "node", "worker", "-o", "jsonpath={.spec.taints}"))
    assert {"key": "k", "value": "v", "effect": "NoExecute"} in taints
    assert "already has k taint(s)" in kubectl_error("taint", "nodes", "worker", "k=v:NoExecute")
    assert kubectl("taint", "nodes", "worker", "k-") == "node/worker untainted"


def test_drain_evicts(kubectl: Kubectl, get: Any, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "leaving"}})
    overrides = '{"spec":{"nodeName":"leaving","terminationGracePeriodSeconds":0}}'
    kubectl("run", "guest", "-n", namespace, "--image=i", "--overrides", overrides)
    said = kubectl("drain", "leaving", "--force", "--grace-period=0", "--timeout=10s")
    assert said.splitlines()[-1] == "node/leaving drained"
    assert kubectl("get", "pods", "-n", namespace) == ""


def test_delete_by_name_label_and_all(
    kubectl: Kubectl, kubectl_error: Kubectl, run: Any, create: Any, namespace: str
) -> None:
    for name, label in (("a", "x=1"), ("b", "x=1"), ("c", "x=2"), ("d", "x=3")):
        kubectl("run", name, "-n", namespace, "--image=i", f"--labels={label}")
    create("configmap", "kept")
    pods = ("pods", "-n", namespace)
    assert kubectl("delete", "pod/d", "-n", namespace).startswith('pod "d" ')
    assert kubectl_error("delete", "pod/d", "-n", namespace) == 'Error from server (NotFound): pods "d" not found'
    assert kubectl("delete", "pod/d", "-n", namespace, "--ignore-not-found") == ""
    assert len(kubectl("delete", *pods, "-l", "x=1").splitlines()) == 2
    assert kubectl("get", *pods, "-o", "name") == "pod/c"
    assert kubectl("delete", *pods, "--all").startswith('pod "c" ')
    assert run("delete", *pods, "--all") == (0, "No resources found\n", "")
    assert kubectl("get", "configmap", "kept", "-n", namespace, "-o", "name") == "configmap/kept"


def test_pod_on_a_node_gets_its_grace_period(kubectl: Kubectl, get: Any, namespace: str) -> None:
    overrides = '{"spec":{"nodeName":"far-away"}}'
    for name in ("slow", "forced", "quick"):
        kubectl("run", name, "-n", namespace, "--image=i", "--overrides", overrides)
        kubectl("delete", "pod", name, "-n", namespace, "--wait=false")
        assert kubectl("get", "pod", name, "-n", namespace, "--no-headers").split()[2] == "Terminating"
        assert get(f"pod/{name}", ".metadata.deletionGracePeriodSeconds") == "30"
    kubectl("delete", "pod", "forced", "-n", namespace, "--grace-period=0", "--force")
    kubectl("delete", "pod", "quick", "-n", namespace, "--now", "--wait=false")
    assert get("pod/quick", ".metadata.deletionGracePeriodSeconds") == "1"
    assert kubectl("get", "pods", "-n", namespace, "-o", "name").splitlines() == ["pod/quick", "pod/slow"]


@pytest.mark.parametrize(("cascade", "finalizer"), [("orphan", "orphan"), ("foreground", "foregroundDeletion")])
def test_cascade_waits_for_its_finalizer(
    kubectl: Kubectl, create: Any, get: Any, namespace: str, cascade: str, finalizer: str
) -> None:
    create("deployment", "web", "--image=i")
    kubectl("delete", "deployment", "web", "-n", namespace, f"--cascade={cascade}", "--wait=false")
    assert get("deployment/web", ".metadata.finalizers") == f'["{finalizer}"]'
    assert get("deployment/web", ".metadata.deletionTimestamp") != ""
    free = '[{"op":"remove","path":"/metadata/finalizers"}]'
    kubectl("patch", "deployment", "web", "-n", namespace, "--type=json", "-p", free)
    assert kubectl("get", "deployments", "-n", namespace) == ""


def test_other_finalizers_hold_an_object(kubectl: Kubectl, kubectl_error: Kubectl, get: Any, namespace: str) -> None:
    metadata = {"name": "held", "namespace": namespace, "finalizers": ["example.com/look-first"]}
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    kubectl("delete", "configmap", "held", "-n", namespace, "--wait=false")
    first = get("configmap/held", ".metadata.deletionTimestamp")
    kubectl("delete", "configmap", "held", "-n", namespace, "--wait=false")
    assert get("configmap/held", ".metadata.deletionTimestamp") == first
    more = '{"metadata":{"finalizers":["example.com/look-first","example.com/too-late"]}}'
    assert "metadata.finalizers" in kubectl_error(
        "patch", "configmap", "held", "-n", namespace, "--type=merge", "-p", more
    )
    kubectl("patch", "configmap", "held", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert kubectl_error("get", "configmap", "held", "-n", namespace).startswith("Error from server (NotFound)")


def test_delete_a_whole_file(kubectl: Kubectl, namespace: str) -> None:
    names = ("one", "two")
    items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in names]
    both = {"apiVersion": "v1", "kind": "List", "items": items}
    kubectl("apply", "-n", namespace, "-f", "-", "--validate=false", stdin=both)
    assert len(kubectl("delete", "-n", namespace, "-f", "-", stdin=both).splitlines()) == 2
    assert kubectl("get", "configmaps", "-n", namespace) == ""
