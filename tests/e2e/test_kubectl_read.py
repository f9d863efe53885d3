"""kubectl get, describe, watch, wait and server information."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("manifests")]

Kubectl = Callable[..., str]


def table(text: str) -> list[list[str]]:
    """The cells of a table, by column."""
    header, *rows = text.splitlines()
    starts = [0] + [at for at in range(2, len(header)) if header[at - 2 : at] == "  " and header[at] != " "]
    ends = [*starts[1:], None]
    return [[row[start:end].strip() for start, end in zip(starts, ends, strict=True)] for row in (header, *rows)]


def test_get_all_over_all_namespaces(kubectl: Kubectl) -> None:
    said = kubectl("get", "all", "-A")
    first = {line.split()[1] for line in said.splitlines() if line and not line.startswith("NAMESPACE")}
    assert {
        "pod/probe",
        "service/front",
        "service/kubernetes",
        "daemonset.apps/watcher",
        "deployment.apps/front",
        "replicaset.apps/relay",
        "statefulset.apps/quorum",
        "horizontalpodautoscaler.autoscaling/front",
        "cronjob.batch/nightly",
        "job.batch/import",
    } <= first


@pytest.mark.parametrize(
    ("what", "columns", "cells"),
    [
        (
            "pods -n agents",
            "NAME READY STATUS RESTARTS AGE",
            ["probe", "0/2", "Pending", "0"],
        ),
        (
            "deployments -n guests front",
            "NAME READY UP-TO-DATE AVAILABLE AGE",
            ["front", "0/3", "0", "0"],
        ),
        (
            "statefulsets -n ledger",
            "NAME READY AGE",
            ["quorum", "0/3"],
        ),
        (
            "daemonsets -n agents",
            "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE-SELECTOR AGE",
            ["watcher", "0", "0", "0", "0", "0", "<none>"],
        ),
        (
            "replicasets -n agents",
            "NAME DESIRED CURRENT READY AGE",
            ["relay", "2", "0", "0"],
        ),
        (
            "services -n ledger",
            "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
            ["quorum", "ClusterIP", "None", "<none>", "7000/TCP,7001/TCP"],
        ),
        (
            "endpoints -n agents",
            "NAME ENDPOINTS AGE",
            ["outside", "192.0.2.10:5432,192.0.2.11:5432"],
        ),
        (
            "endpointslices -n agents",
            "NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
            ["outside-1", "IPv4", "5432", "192.0.2.10"],
        ),
        (
            "ingresses -n guests",
            "NAME CLASS HOSTS ADDRESS PORTS AGE",
            ["front", "public", "book.example", "", "80, 443"],
        ),
        (
            "hpa -n guests",
            "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE",
            ["front", "Deployment/front", "cpu: <unknown>/70%", "2", "6", "0"],
        ),
        (
            "pdb -n guests",
            "NAME MIN-AVAILABLE MAX-UNAVAILABLE ALLOWED-DISRUPTIONS AGE",
            ["front", "50%", "N/A", "0"],
        ),
        (
            "networkpolicies -n guests",
            "NAME POD-SELECTOR AGE",
            ["pages-from-front", "tier=pages"],
        ),
        (
            "cronjobs -n ledger",
            "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST-SCHEDULE AGE",
            ["nightly", "15 3 * * *", "Etc/UTC", "False", "0", "<none>"],
        ),
        (
            "jobs -n ledger",
            "NAME STATUS COMPLETIONS DURATION AGE",
            ["import", "Running", "0/4", ""],
        ),
        (
            "pvc -n ledger",
            "NAME STATUS VOLUME CAPACITY ACCESS-MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE",
            ["archive", "Pending", "", "", "", "slow", "<unset>"],
        ),
        (
            "pv",
            "NAME CAPACITY ACCESS-MODES RECLAIM-POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE",
            ["shelf-1", "20Gi", "RWX", "Retain", "Pending", "", "slow", "<unset>", ""],
        ),
        (
            "storageclasses",
            "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE",
            ["fast (default)", "disks.example.com", "Delete", "WaitForFirstConsumer", "true"],
        ),
        (
            "configmaps -n guests",
            "NAME DATA AGE",
            ["book-settings", "3"],
        ),
        (
            "secrets -n guests",
            "NAME TYPE DATA AGE",
            ["book-keys", "Opaque", "1"],
        ),
        (
            "serviceaccounts -n agents",
            "NAME AGE",
            ["watcher"],
        ),
        (
            "rolebindings -n agents",
            "NAME ROLE AGE",
            ["watcher-keeps-notes", "Role/keep-notes"],
        ),
        (
            "leases -n agents",
            "NAME HOLDER AGE",
            ["watcher-leader", "machine-1_watcher"],
        ),
        (
            "namespaces guests",
            "NAME STATUS AGE",
            ["guests", "Active"],
        ),
        (
            "ingressclasses",
            "NAME CONTROLLER PARAMETERS AGE",
            ["public", "gates.example.com/public", "<none>"],
        ),
    ],
)
def test_tables(kubectl: Kubectl, what: str, columns: str, cells: list[str]) -> None:
    header, *rows = table(kubectl("get", *what.split()))
    assert [column.replace(" ", "-") for column in header] == columns.split()
    assert cells in [row[: len(cells)] for row in rows]


def test_wide_tables(kubectl: Kubectl) -> None:
    header, row = table(kubectl("get", "pods", "-n", "agents", "-o", "wide"))
    assert header[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert row[5:] == ["<none>", "machine-1", "<none>", "<none>"]
    header, row = table(kubectl("get", "deployment", "front", "-n", "guests", "-o", "wide"))
    assert header[5:] == ["CONTAINERS", "IMAGES", "SELECTOR"]
    assert row[5:] == ["web", "registry.example/guestbook/front:4", "app=guestbook,tier=front"]
    header, row = table(kubectl("get", "service", "pages", "-n", "guests", "-o", "wide"))
    assert (header[-1], row[-1]) == ("SELECTOR", "app=guestbook,tier=pages")


def test_labels_in_tables(kubectl: Kubectl) -> None:
    header, row = table(kubectl("get", "namespace", "guests", "--show-labels"))
    assert (header[-1], row[-1]) == ("LABELS", "kubernetes.io/metadata.name=guests,team=hospitality")
    header, *rows = table(kubectl("get", "deployments", "-n", "guests", "-L", "tier"))
    assert header[-1] == "TIER"
    assert [row[-1] for row in rows] == ["front", "pages"]


def test_other_output_formats(kubectl: Kubectl) -> None:
    front = ("get", "service", "front", "-n", "guests", "-o")
    assert kubectl(*front, "name") == "service/front"
    assert kubectl(*front, "jsonpath={.spec.ports[*].port}") == "80 9100"
    assert kubectl(*front, "go-template={{range .spec.ports}}{{.name}};{{end}}") == "http;metrics;"
    assert kubectl(*front, "custom-columns=T:.spec.type,N:.metadata.name").split() == ["T", "N", "NodePort", "front"]
    as_yaml, as_json = yaml.safe_load(kubectl(*front, "yaml")), json.loads(kubectl(*front, "json"))
    assert as_yaml == as_json
    assert list(as_json) == ["apiVersion", "kind", "metadata", "spec", "status"]
    everything = json.loads(kubectl("get", "deployments,services", "-n", "guests", "-o", "json"))
    assert (everything["kind"], [item["kind"] for item in everything["items"]]) == (
        "List",
        ["Deployment", "Deployment", "Service", "Service"],
    )


def test_defaults_are_visible(kubectl: Kubectl) -> None:
    pod = yaml.safe_load(kubectl("get", "pod", "probe", "-n", "agents", "-o", "yaml"))
    assert pod["spec"]["containers"][0] == {
        "name": "probe",
        "image": "registry.example/probe:1",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(pod["metadata"])


def test_sorting_and_selecting(kubectl: Kubectl, kubectl_error: Kubectl) -> None:
    names = kubectl("get", "services", "-A", "--sort-by=.metadata.name", "-o", "name").splitlines()
    assert names == sorted(names)
    assert len(names) > 3
    by_label = "tier in (pages, nothing), app=guestbook, !missing"
    assert kubectl("get", "services", "-A", "--selector", by_label, "-o", "name") == "service/pages"
    by_field = "spec.nodeName=machine-1,status.phase!=Running"
    assert kubectl("get", "pods", "-A", "--field-selector", by_field, "-o", "name") == "pod/probe"
    assert kubectl("get", "nodes", "--field-selector", "metadata.name=machine-2", "-o", "name") == "node/machine-2"
    assert kubectl("get", "pods", "-A", "-l", "app=nothing") == ""
    assert "field label not supported: spec.dream" in kubectl_error("get", "pods", "--field-selector", "spec.dream=1")
    assert kubectl_error("get", "pods", "-l", "a b").startswith("Error from server (BadRequest): ")


def test_missing_objects_are_reported(kubectl: Kubectl, kubectl_error: Kubectl, run: Any) -> None:
    assert kubectl_error("get", "pod", "nope") == 'Error from server (NotFound): pods "nope" not found'
    assert kubectl_error("get", "deploy", "nope") == 'Error from server (NotFound): deployments.apps "nope" not found'
    assert kubectl_error("get", "dreams") == """error: the server doesn't have a resource type "dreams\""""
    assert kubectl("get", "pod", "nope", "--ignore-not-found") == ""
    assert run("get", "pods", "-n", "nope") == (0, "", "No resources found in nope namespace.\n")


def test_lists_come_in_chunks(kubectl: Kubectl) -> None:
    whole = kubectl("get", "services", "-A", "-o", "name")
    assert kubectl("get", "services", "-A", "-o", "name", "--chunk-size=1") == whole


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("pod probe -n agents", ["Node: machine-1/", "Status: Pending", "QoS Class: BestEffort"]),
        ("service front -n guests", ["Type: NodePort", "Port: http 80/TCP", "TargetPort: web/TCP"]),
        (
            "deployment front -n guests",
            [
                "Replicas: 3 desired | 0 updated | 0 total | 0 available | 0 unavailable",
                "RollingUpdateStrategy: 25% max unavailable, 1 max surge",
                "Readiness: http-get http://:web/ready delay=0s timeout=1s period=5s #success=1 #failure=3",
            ],
        ),
        ("node machine-2", ["Taints: example.com/batch=yes:NoSchedule", "Unschedulable: false"]),
        ("namespace ledger", ["Status: Active", "Container memory - - 256Mi 256Mi -"]),
        ("statefulset quorum -n ledger", ["Replicas: 3 desired | 0 total", "Capacity: 2Gi", "Partition: 1"]),
        ("daemonset watcher -n agents", ["Image: registry.example/watcher:7", "Priority Class Name: urgent"]),
        ("replicaset relay -n agents", ["Selector: app in (relay)", "Replicas: 0 current / 2 desired"]),
        ("job import -n ledger", ["Parallelism: 2", "Completion Mode: NonIndexed"]),
        ("cronjob nightly -n ledger", ["Schedule: 15 3 * * *", "Concurrency Policy: Forbid"]),
        ("ingress front -n guests", ["Ingress Class: public", "book-tls terminates book.example"]),
        ("hpa front -n guests", ["Reference: Deployment/front", "Min replicas: 2"]),
        ("pdb front -n guests", ["Min available: 50%"]),
        ("networkpolicy pages-from-front -n guests", ["To Port: 6379/TCP", "PodSelector: tier=front"]),
        ("pvc archive -n ledger", ["Status: Pending", "VolumeMode: Filesystem"]),
        ("pv shelf-1", ["Reclaim Policy: Retain", "Capacity: 20Gi"]),
        ("storageclass fast", ["IsDefaultClass: Yes", "Provisioner: disks.example.com"]),
        ("configmap book-settings -n guests", ["seal: 4 bytes", "Welcome"]),
        ("secret book-keys -n guests", ["cookie: 13 bytes"]),
        ("clusterrole see-machines", ["nodes/status [] [] [get list watch]", "[/metrics] [] [get]"]),
        ("rolebinding watcher-keeps-notes -n agents", ["Name: keep-notes", "ServiceAccount watcher agents"]),
        ("endpoints outside -n agents", ["Addresses: 192.0.2.10,192.0.2.11", "sql 5432 TCP"]),
        ("lease watcher-leader -n agents", ["Holder Identity: machine-1_watcher"]),
    ],
)
def test_describe(kubectl: Kubectl, what: str, lines: list[str]) -> None:
    said = [" ".join(line.split()) for line in kubectl("describe", *what.split()).splitlines()]
    assert set(lines) <= set(said), "\n".join(said)


def test_describe_shows_events(kubectl: Kubectl, namespace: str) -> None:
    kubectl("run", "noted", "-n", namespace, "--image=i")
    uid = kubectl("get", "pod", "noted", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "noted-", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "noted", "namespace": namespace, "uid": uid},
        "type": "Warning",
        "reason": "Doubtful",
        "message": "it may not start",
        "source": {"component": "sceptic"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 3,
    }
    kubectl("create", "-f", "-", stdin=event)
    assert "Doubtful" in kubectl("describe", "pod", "noted", "-n", namespace)
    header, row = table(kubectl("get", "events", "-n", namespace))
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Warning", "Doubtful", "pod/noted", "it may not start"]
    assert "Doubtful" in kubectl("events", "-n", namespace, "--for", "pod/noted")
    selected = kubectl("get", "events", "-n", namespace, "--field-selector", f"involvedObject.uid={uid}", "-o", "name")
    assert selected.startswith("event/noted-")
    newer = json.loads(kubectl("get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json"))["items"][0]
    assert (newer["note"], newer["regarding"]["name"], newer["deprecatedCount"]) == ("it may not start", "noted", 3)


def test_get_watch_shows_changes(kubectl: Kubectl, launch: Any, namespace: str) -> None:
    kubectl("run", "seen", "-n", namespace, "--image=i")
    watching = launch("get", "pods", "-n", namespace, "-w", "--output-watch-events")
    assert watching.stdout.readline().split() == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert watching.stdout.readline().split()[:4] == ["ADDED", "seen", "0/1", "Pending"]
    container = {"name": "seen", "image": "i", "imageID": "i", "restartCount": 2, "ready": True}
    started = {"state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}
    status = json.dumps({"status": {"phase": "Running", "containerStatuses": [container | started]}})
    kubectl("patch", "pod", "seen", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    assert watching.stdout.readline().split()[:5] == ["MODIFIED", "seen", "1/1", "Running", "2"]
    kubectl("run", "second", "-n", namespace, "--image=i")
    assert watching.stdout.readline().split()[:2] == ["ADDED", "second"]
    kubectl("delete", "pod", "seen", "-n", namespace, "--now")
    assert watching.stdout.readline().split()[:2] == ["MODIFIED", "seen"]  # no grace period remains
    assert watching.stdout.readline().split()[:2] == ["DELETED", "seen"]
    watching.terminate()
    watching.communicate()


def test_wait_for_conditions_and_fields(kubectl: Kubectl, kubectl_error: Kubectl, launch: Any, namespace: str) -> None:
    kubectl("run", "slow", "-n", namespace, "--image=i")
    slow = ("pod/slow", "-n", namespace, "--timeout=60s")
    ready = launch("wait", *slow, "--for=condition=Ready")
    running = launch("wait", *slow, "--for=jsonpath={.status.phase}=Running")
    gone = launch("wait", *slow, "--for=delete")
    time.sleep(0.3)
    assert {child.poll() for child in (ready, running, gone)} == {None}
    status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "slow", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    for child in (ready, running):
        assert child.communicate(timeout=60) == ("pod/slow condition met\n", "")
    assert gone.poll() is None
    kubectl("delete", "pod", "slow", "-n", namespace, "--now")
    assert gone.communicate(timeout=60)[0] == "pod/slow condition met\n"
    assert (ready.returncode, running.returncode, gone.returncode) == (0, 0, 0)
    kubectl("run", "never", "-n", namespace, "--image=i")
    said = kubectl_error("wait", "pod/never", "-n", namespace, "--for=condition=Ready", "--timeout=100ms")
    assert said == "error: timed out waiting for the condition on pods/never"


def test_server_information_commands(kubectl: Kubectl, kubectl_error: Kubectl, server: Any) -> None:
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["minor"] == "36"
    assert server.url in kubectl("cluster-info")
    rows = [line.split() for line in kubectl("api-resources").splitlines()]
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    assert ["componentstatuses", "cs", "v1", "false", "ComponentStatus"] in rows
    batch = kubectl("api-resources", "--api-group=batch", "--verbs=list,watch", "-o", "name")
    assert batch.splitlines() == ["cronjobs.batch", "jobs.batch"]
    assert {"v1", "apps/v1", "autoscaling/v2", "events.k8s.io/v1"} <= set(kubectl("api-versions").splitlines())
    assert kubectl("auth", "can-i", "delete", "nodes") == "yes"
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert (
        kubectl_error("get", "--raw", "/nothing")
        == "Error from server (NotFound): the server could not find the requested resource"
    )
    assert kubectl_error("top", "nodes") == "error: Metrics API not available"


def test_unknown_token_is_unauthorized(kubectl_error: Kubectl, server: Any) -> None:
    anonymous = ("--kubeconfig=/dev/null", "--insecure-skip-tls-verify", f"--server={server.url}")
    said = kubectl_error(*anonymous, "--token=guessed", "get", "--raw", "/api/v1/pods")
    assert said == "error: You must be logged in to the server (Unauthorized)"
