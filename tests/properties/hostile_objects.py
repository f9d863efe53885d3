"""Valid objects, each with one very large part; work on them must yield to the event loop."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Tree = dict[str, Any]
Make = Callable[[int], Tree]
POD_SPEC: Tree = {"containers": [{"name": "main", "image": "i"}]}
LABELS = {"app": "large"}
RESOURCES: Tree = {f"example.org/r{number}": "1" for number in range(50_000)}


def pod(spec: Tree | None = None, **metadata: Any) -> Tree:
    meta = {"name": "large", "labels": LABELS, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**POD_SPEC, **(spec or {})}}


def main(**fields: Any) -> Tree:
    return pod({"containers": [{"name": "main", "image": "i", **fields}]})


def containers(count: int, **more: Any) -> list[Tree]:
    return [{"name": f"c{number}", "image": "i", **more} for number in range(count)]


def expression(count: int, operator: str = "NotIn", key: str = "key") -> Tree:
    return {"key": key, "operator": operator, "values": [f"v{number}" for number in range(count)]}


def owner(number: int) -> Tree:
    return {"apiVersion": "v1", "kind": "Secret", "name": f"s{number}", "uid": f"u{number}"}


def texts(count: int, form: str = "example.org/t{}") -> list[str]:
    return [form.format(number) for number in range(count)]


def address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def node_terms(count: int) -> Tree:
    terms = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(count)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def pod_terms(count: int, kind: str) -> Tree:
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {f"k{number}": "v"}}} for number in range(count)]
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def preferred_terms(count: int) -> Tree:
    terms = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {f"k{n}": "v"}}}}
        for n in range(count)
    ]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def some_resources(count: int) -> Mapping[str, str]:
    return dict(list(RESOURCES.items())[:count])


# Pods, by their large part.
PODS: Mapping[str, Make] = {
    "containers": lambda n: pod({"containers": containers(n)}),
    "init containers": lambda n: pod({"initContainers": containers(n)}),
    "sidecars": lambda n: pod({"initContainers": containers(n, restartPolicy="Always")}),
    "containers with requests": (
        lambda n: pod({"containers": containers(n, resources={"requests": {"cpu": "1n", "memory": "1"}})})
    ),
    "variables": lambda n: main(env=[{"name": f"E{number}", "value": "v"} for number in range(n)]),
    "arguments": lambda n: main(args=texts(n, "a{}")),
    "ports": lambda n: main(ports=[{"containerPort": 1 + number % 65535} for number in range(n)]),
    "host ports": lambda n: main(ports=[{"containerPort": 1 + x, "hostPort": 1 + x} for x in range(min(n, 65_000))]),
    "resources": lambda n: main(resources={"limits": some_resources(n // 2), "requests": some_resources(n // 2)}),
    "volumes": lambda n: pod({"volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(n)]}),
    "claims of volumes": (
        lambda n: pod(
            {"volumes": [{"name": f"v{x}", "persistentVolumeClaim": {"claimName": f"c{x}"}} for x in range(n)]}
        )
    ),
    "tolerations": (
        lambda n: pod(
            {"tolerations": [{"key": f"k{x}", "operator": "Exists", "effect": "NoExecute"} for x in range(n)]}
        )
    ),
    "terms of node affinity": lambda n: pod({"affinity": node_terms(n)}),
    "values of node affinity": (
        lambda n: pod(
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [expression(n)]}]
                        }
                    }
                }
            }
        )
    ),
    "terms of affinity": lambda n: pod({"affinity": pod_terms(n, "podAffinity")}),
    "terms of anti-affinity": lambda n: pod({"affinity": pod_terms(n, "podAntiAffinity")}),
    "preferences": lambda n: pod({"affinity": preferred_terms(n)}),
    "spread constraints": (
        lambda n: pod(
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": f"k{x}", "whenUnsatisfiable": "ScheduleAnyway"} for x in range(n)
                ]
            }
        )
    ),
    "node selector": lambda n: pod({"nodeSelector": {f"k{number}": "v" for number in range(n)}}),
    "scheduling gates": lambda n: pod({"schedulingGates": [{"name": f"example.org/g{x}"} for x in range(n)]}),
    "readiness gates": lambda n: pod({"readinessGates": [{"conditionType": f"example.org/g{x}"} for x in range(n)]}),
    "resource claims": (
        lambda n: pod({"resourceClaims": [{"name": f"r{x}", "resourceClaimName": f"r{x}"} for x in range(n)]})
    ),
    "image pull secrets": lambda n: pod({"imagePullSecrets": [{"name": f"s{x}"} for x in range(n)]}),
    "host aliases": lambda n: pod({"hostAliases": [{"ip": address(x), "hostnames": ["h"]} for x in range(n)]}),
    "owners": lambda n: pod(ownerReferences=[owner(number) for number in range(n)]),
    "finalizers": lambda n: pod(finalizers=texts(n)),
    "labels": lambda n: pod(labels={f"k{number}": "v" for number in range(n)}),
    "annotations": lambda n: pod(annotations={f"k{number}": "v" for number in range(min(n, 18_000))}),
}


def object_of(kind: str, spec: Tree, **metadata: Any) -> Tree:
    version, _, name = kind.rpartition("/")
    return {"apiVersion": version, "kind": name, "metadata": {"name": "large", **metadata}, "spec": spec}


def template(spec: Tree | None = None) -> Tree:
    return {"metadata": {"labels": LABELS}, "spec": {**POD_SPEC, **(spec or {})}}


def workload(kind: str, count: int, **more: Any) -> Tree:
    selector = {"matchLabels": LABELS, "matchExpressions": [expression(count)]}
    return object_of(kind, {"selector": selector, "template": template(), **more})


def job(count: int) -> Tree:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": f"T{number}"}]} for number in range(min(count, 20))]
    spec = template({"restartPolicy": "Never", "containers": containers(count)})
    return object_of("batch/v1/Job", {"template": spec, "podFailurePolicy": {"rules": rules}})


def claim_template(number: int) -> Tree:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": f"c{number}"}, "spec": spec}


# Objects of other kinds.
OTHERS: Mapping[str, Make] = {
    "deployment's selector": lambda n: workload("apps/v1/Deployment", n),
    "deployment's containers": (
        lambda n: object_of(
            "apps/v1/Deployment",
            {"selector": {"matchLabels": LABELS}, "template": template({"containers": containers(n)})},
        )
    ),
    "replica set's selector": lambda n: workload("apps/v1/ReplicaSet", n),
    "daemon set's selector": lambda n: workload("apps/v1/DaemonSet", n),
    "daemon set's node affinity": (
        lambda n: object_of(
            "apps/v1/DaemonSet",
            {"selector": {"matchLabels": LABELS}, "template": template({"affinity": node_terms(n)})},
        )
    ),
    "daemon set's tolerations": (
        lambda n: object_of(
            "apps/v1/DaemonSet",
            {
                "selector": {"matchLabels": LABELS},
                "template": template({"tolerations": [{"key": f"k{x}", "operator": "Exists"} for x in range(n)]}),
            },
        )
    ),
    "stateful set's claims": (
        lambda n: workload(
            "apps/v1/StatefulSet", 1, serviceName="s", volumeClaimTemplates=[claim_template(x) for x in range(n)]
        )
    ),
    "job": job,
    "cron job's schedule": (
        lambda n: object_of(
            "batch/v1/CronJob",
            {
                "schedule": ",".join(f"{x % 60:05}" for x in range(n // 6)) + " * * * *",
                "jobTemplate": {"spec": {"template": template({"restartPolicy": "Never"})}},
            },
        )
    ),
    "service's ports": (
        lambda n: object_of(
            "v1/Service",
            {"selector": LABELS, "ports": [{"name": f"p{x}", "port": 1 + x} for x in range(min(n, 65_000))]},
        )
    ),
    "service's selector": (
        lambda n: object_of("v1/Service", {"selector": {f"k{x}": "v" for x in range(n)}, "ports": [{"port": 80}]})
    ),
    "service's external addresses": (
        lambda n: object_of(
            "v1/Service", {"selector": LABELS, "ports": [{"port": 80}], "externalIPs": [address(x) for x in range(n)]}
        )
    ),
    "endpoints": (
        lambda n: {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "large"},
            "subsets": [{"addresses": [{"ip": address(x)} for x in range(n)], "ports": [{"port": 1}]}],
        }
    ),
    "subsets of endpoints": (
        lambda n: {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "large"},
            "subsets": [{"addresses": [{"ip": address(x)}], "ports": [{"port": 1 + x % 65_000}]} for x in range(n)],
        }
    ),
    "disruption budget": (
        lambda n: object_of(
            "policy/v1/PodDisruptionBudget", {"minAvailable": 1, "selector": {"matchExpressions": [expression(n)]}}
        )
    ),
    "autoscaler's metrics": (
        lambda n: object_of(
            "autoscaling/v2/HorizontalPodAutoscaler",
            {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metrics": [
                    {
                        "type": "External",
                        "external": {"metric": {"name": f"m{x}"}, "target": {"type": "Value", "value": "1"}},
                    }
                    for x in range(n)
                ],
            },
        )
    ),
    "quota": lambda n: object_of("v1/ResourceQuota", {"hard": {f"count/things{x}.example.org": "1" for x in range(n)}}),
    "quota's scopes": (
        lambda n: object_of(
            "v1/ResourceQuota",
            {
                "hard": {"pods": "100"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": texts(n, "v{}")}]
                },
            },
        )
    ),
    "limits": lambda n: object_of("v1/LimitRange", {"limits": [{"type": "Container", "default": some_resources(n)}]}),
    "network policy": (
        lambda n: object_of(
            "networking.k8s.io/v1/NetworkPolicy",
            {
                "podSelector": {},
                "ingress": [{"from": [{"ipBlock": {"cidr": f"10.{x >> 8 & 255}.{x & 255}.0/24"}} for x in range(n)]}],
            },
        )
    ),
    "ingress": (
        lambda n: object_of(
            "networking.k8s.io/v1/Ingress",
            {
                "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
                "tls": [{"hosts": [f"h{x}.example"]} for x in range(n)],
            },
        )
    ),
    "config map's owners": (
        lambda n: {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "large", "ownerReferences": [owner(x) for x in range(n)]},
        }
    ),
    "config map's finalizers": (
        lambda n: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large", "finalizers": texts(n)}}
    ),
    "service account's secrets": (
        lambda n: {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "large"},
            "secrets": [{"name": f"s{x}"} for x in range(n)],
        }
    ),
    "claim of a volume": (
        lambda n: object_of(
            "v1/PersistentVolumeClaim",
            {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "selector": {"matchLabels": {f"k{x}": "v" for x in range(n)}},
            },
        )
    ),
    "volume's node affinity": (
        lambda n: object_of(
            "v1/PersistentVolume",
            {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/a"},
                "nodeAffinity": {
                    "required": node_terms(n)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                },
            },
        )
    ),
    "volume's mount options": (
        lambda n: object_of(
            "v1/PersistentVolume",
            {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/a"},
                "mountOptions": texts(n, "o{}"),
            },
        )
    ),
    "node's taints": (
        lambda n: object_of("v1/Node", {"taints": [{"key": f"k{x}", "effect": "NoExecute"} for x in range(n)]})
    ),
    "node's labels": lambda n: object_of("v1/Node", {}, labels={f"k{x}": "v" for x in range(n)}),
    "cluster role's rules": (
        lambda n: {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "large", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": ["a"], "resources": [f"r{x}"], "verbs": ["get"]} for x in range(n)],
        }
    ),
    "cluster role's selectors": (
        lambda n: {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "large"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {f"k{x}": "v"}} for x in range(n)]},
        }
    ),
    "role binding's subjects": (
        lambda n: {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "large"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"u{x}"} for x in range(n)],
        }
    ),
    "namespace's finalizers": lambda n: object_of("v1/Namespace", {"finalizers": texts(n)}),
    "resource slice": (
        lambda n: object_of(
            "resource.k8s.io/v1/ResourceSlice",
            {
                "driver": "d.example.org",
                "nodeName": "node-1",
                "pool": {"name": "p", "resourceSliceCount": 1},
                "devices": [{"name": f"d{x}"} for x in range(min(n, 128))],
            },
        )
    ),
}

# Statuses of existing objects: the kind, and the status.
STATUSES: Mapping[str, Make] = {
    "conditions of a pod": (
        lambda n: {
            **pod(),
            "status": {"conditions": [{"type": f"example.org/c{x}", "status": "True"} for x in range(n)]},
        }
    ),
    "conditions of a node": (
        lambda n: {
            **object_of("v1/Node", {}),
            "status": {"conditions": [{"type": f"example.org/c{x}", "status": "True"} for x in range(n)]},
        }
    ),
    "images of a node": (
        lambda n: {
            **object_of("v1/Node", {}),
            "status": {"images": [{"names": [f"i{x}"], "sizeBytes": 1} for x in range(n)]},
        }
    ),
    "addresses of a node": (
        lambda n: {
            **object_of("v1/Node", {}),
            "status": {"addresses": [{"type": "Hostname", "address": f"h{x}"} for x in range(n)]},
        }
    ),
    "capacity of a node": lambda n: {
        **object_of("v1/Node", {}),
        "status": {"capacity": some_resources(n), "allocatable": some_resources(n)},
    },
    "attached volumes of a node": (
        lambda n: {
            **object_of("v1/Node", {}),
            "status": {
                "volumesAttached": [{"name": f"v{x}", "devicePath": "d"} for x in range(n)],
                "volumesInUse": texts(n, "v{}"),
            },
        }
    ),
    "disrupted pods of a budget": (
        lambda n: {
            **object_of("policy/v1/PodDisruptionBudget", {"minAvailable": 1, "selector": {}}),
            "status": {
                "disruptedPods": {f"p{x}": "2026-01-01T00:00:00Z" for x in range(n)},
                "currentHealthy": 0,
                "desiredHealthy": 0,
                "disruptionsAllowed": 0,
                "expectedPods": 0,
            },
        }
    ),
    "conditions of a job": (
        lambda n: {
            **job(1),
            "status": {"conditions": [{"type": f"example.org/c{x}", "status": "True"} for x in range(n)]},
        }
    ),
}


def makers() -> dict[str, Make]:
    """Return the functions that make each object, by its large part."""
    return {**{f"pod: {name}": make for name, make in PODS.items()}, **OTHERS, **STATUSES}


def large_object(make: Make, size: int, most_values: int = 90_000) -> Tree:
    """Return an object of about this size in bytes as JSON, with no more values than a server accepts."""
    count = 16
    while True:
        data = json.dumps(make(2 * count), separators=(",", ":"))
        if len(data) > size or sum(map(data.count, ",[{")) > most_values or count > 1 << 17:
            return make(count)
        count = count * 5 // 4
