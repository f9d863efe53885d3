"""The objects of a large cluster as kubelets and controllers leave them, written below the server."""

import asyncio
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from apiserver_stub.common.flags import DATABASE
from apiserver_stub.process.storage_factory import embedded_storage
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.sqlite import SqliteBackend

_GROUP = 500  # rows of one transaction
_REPLICAS = 30  # pods of one replica set
_TIME = "2026-11-20T09:00:0{}Z"
_POD = Path(__file__).with_name("running_pod.json")


@dataclass(frozen=True)
class Population:
    """So many objects of each kind; pods and services are spread evenly over nodes and namespaces."""

    nodes: int
    pods: int
    services: int
    namespaces: int

    @property
    def objects(self) -> int:
        """Return how many there are."""
        return 2 * self.nodes + self.pods + 2 * self.services + self.namespaces

    def writes(self) -> Iterator[Write]:
        """Yield all of them: namespaces, nodes with their leases, services with their addresses, pods."""
        for number in range(self.namespaces):
            yield Write("namespaces", f"ns-{number}", 0, _encoded(_namespace(number)))
        for number in range(self.nodes):
            yield Write("nodes", f"node-{number}", 0, _encoded(_node(number)))
            lease = Write("leases.coordination.k8s.io", f"kube-node-lease/node-{number}", 0, _encoded(_lease(number)))
            yield lease
        for number in range(self.services):
            address = _address(number)
            namespace = self.namespace_of(number)
            yield Write("ipaddresses.networking.k8s.io", address, 0, _encoded(_ip_address(number, namespace)))
            yield Write("services", f"{namespace}/service-{number}", 0, _encoded(_service(number, namespace)))
        for number in range(self.pods):
            yield Write("pods", f"{self.namespace_of_pod(number)}/{pod_name(number)}", 0, self.pod(number))

    def pod(self, number: int) -> bytes:
        """Return a pod that runs."""
        return pod_bytes(number, self.namespace_of_pod(number), f"node-{number % self.nodes}")

    def namespace_of_pod(self, number: int) -> str:
        """Return the namespace of a pod by its number."""
        return self.namespace_of(number // _REPLICAS)

    def namespace_of(self, number: int) -> str:
        """Return the namespace of a service, or of a replica set, by its number."""
        return f"ns-{number % self.namespaces}"


async def populate(folder: Path, writes: Iterable[Write]) -> None:
    """Write rows into the database of a server that does not run; one that is new is made."""
    storage = embedded_storage(SqliteBackend(folder / DATABASE))
    await storage.open()
    rows = iter(writes)
    while group := list(islice(rows, _GROUP)):
        await storage.txn(group)
        await asyncio.sleep(0)
    await storage.close()


def pod_name(number: int) -> str:
    """Return the name of a pod by its number."""
    drawn = random.Random(number)
    letters = "".join(drawn.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
    return f"app-{number // _REPLICAS}-7d4b9c6f5-{letters}{number % _REPLICAS}"


def pod_bytes(number: int, namespace: str, node: str) -> bytes:
    """Return a pod of a replica set that a kubelet runs: 6 KB of JSON, of which 2.3 KB say who owns which field."""
    drawn = random.Random(number)
    application = number // _REPLICAS
    second = number % 10
    values = {
        "<NAME>": pod_name(number),
        "<APP>": f"app-{application}",
        "<NAMESPACE>": namespace,
        "<NODE>": node,
        "<UID>": _uid(drawn),
        "<OWNER>": _uid(random.Random(-1 - application)),
        "<VOLUME>": "".join(drawn.choices("bcdfghjklmnpqrstvwxz2456789", k=5)),
        "<POD_IP>": f"10.{drawn.randrange(256)}.{drawn.randrange(256)}.{drawn.randrange(1, 255)}",
        "<HOST_IP>": f"192.168.{number % 250}.{number % 199}",
        "<CONTAINER_ID>": f"{drawn.getrandbits(256):064x}",
        "<CREATED>": _TIME.format(second),
        "<STARTED>": _TIME.format(min(second + 1, 9)),
    }
    text = _pod_template()
    for name, value in values.items():
        text = text.replace(name, value)
    return text.encode()


def _uid(drawn: random.Random) -> str:
    text = f"{drawn.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


@lru_cache(maxsize=1)
def _pod_template() -> str:
    return json.dumps(json.loads(_POD.read_text()), separators=(",", ":"))


def _namespace(number: int) -> dict[str, Any]:
    name = f"ns-{number}"
    labels = {"kubernetes.io/metadata.name": name, "team": f"team-{number % 50}"}
    metadata = _metadata(name, number, labels=labels)
    spec, status = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": spec, "status": status}


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    conditions = [
        {
            "type": kind,
            "status": str(kind == "Ready"),
            "lastHeartbeatTime": _TIME.format(1),
            "lastTransitionTime": _TIME.format(1),
            "reason": f"KubeletHas{kind}",
            "message": "kubelet has sufficient memory available",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    images = [
        {"names": [f"registry.example/base/image-{image}:1.0"], "sizeBytes": 10**8 + image} for image in range(20)
    ]
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": f"192.168.{number // 250}.{number % 250}"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": images,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": _metadata(name, number, labels=labels), "status": status}


def _lease(number: int) -> dict[str, Any]:
    metadata = _metadata(f"node-{number}", number, namespace="kube-node-lease")
    spec = {"holderIdentity": f"node-{number}", "leaseDurationSeconds": 40, "renewTime": "2026-11-20T09:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _address(number: int) -> str:
    return f"10.{128 + number // 60_000}.{number // 240 % 250}.{number % 240 + 10}"


def _ip_address(number: int, namespace: str) -> dict[str, Any]:
    domain = "ipaddress.kubernetes.io"
    labels = {f"{domain}/ip-family": "IPv4", f"{domain}/managed-by": "ipallocator.k8s.io"}
    parent = {"group": "", "resource": "services", "namespace": namespace, "name": f"service-{number}"}
    metadata = _metadata(_address(number), number, labels=labels)
    tree = {"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": metadata}
    return {**tree, "spec": {"parentRef": parent}}


def _service(number: int, namespace: str) -> dict[str, Any]:
    spec = {
        "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        "selector": {"app": f"app-{number}"},
        "clusterIP": _address(number),
        "clusterIPs": [_address(number)],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    metadata = _metadata(f"service-{number}", number, namespace=namespace, labels={"app": f"app-{number}"})
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}


def _metadata(name: str, number: int, **more: Any) -> dict[str, Any]:
    uid = _uid(random.Random(f"{name}/{number}"))
    return {"resourceVersion": "", "name": name, "uid": uid, "creationTimestamp": _TIME.format(0), **more}


def _encoded(tree: dict[str, Any]) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()
