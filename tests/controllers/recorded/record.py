"""Records the responses of a real API server for `test_recorded.py`.

Run `python record.py URL TOKEN [METRICS] > answers.jsonl` as administrator against a new API server (1.36) with
aggregation and RBAC and without controllers. METRICS is the address and port of a resource metrics server; its
discovery contains a resource without verbs. The script creates the objects first and does not delete them.
"""

import base64
import http.client
import json
import ssl
import sys
import time
from typing import Any
from urllib.parse import urlencode, urlsplit

Tree = dict[str, Any]

META = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
META_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
# API groups to keep from discovery.
GROUPS = {"", "apps", "autoscaling", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io"}
GROUPS |= {"recorded.example", "broken.example", "metrics.k8s.io"}
READ = (
    *("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods", "/api/v1/services", "/api/v1/endpoints", "/api/v1/events"),
    *("/api/v1/configmaps", "/api/v1/serviceaccounts", "/apis/discovery.k8s.io/v1/endpointslices"),
    *("/apis/coordination.k8s.io/v1/leases", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    *("/apis/apps/v1/replicasets", "/apis/apps/v1/deployments", "/api/v1/replicationcontrollers"),
    *("/apis/networking.k8s.io/v1/servicecidrs", "/apis/networking.k8s.io/v1/ipaddresses"),
)
WIDGETS = "/apis/recorded.example/v1/widgets"


class Api:
    """A client of the API server that returns exchanges."""

    def __init__(self, url: str, token: str) -> None:
        self._place, self._token = urlsplit(url), token

    def ask(self, method: str, path: str, body: Tree | None = None, *, accept: str = "", **query: str) -> Tree:
        """Return an exchange in recorded form, with the lines of a watch or the body."""
        lax = ssl._create_unverified_context()  # a new server on loopback
        place = http.client.HTTPSConnection(self._place.hostname or "", self._place.port, context=lax, timeout=5)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"authorization": f"Bearer {self._token}", "accept": accept or "application/json"}
        target = f"{path}?{urlencode(query)}" if query else path
        place.request(method, target, json.dumps(body) if body else None, {**headers, "content-type": kind})
        answer = place.getresponse()
        exchange: Tree = {"method": method, "path": path, "query": query, "accept": accept, "status": answer.status}
        if "watch" in query:
            return exchange | {"lines": _lines(answer)}
        text = answer.read().decode()
        return exchange | {"body": json.loads(text) if text.startswith("{") else text}

    def make(self, path: str, tree: Tree, status: Tree | None = None) -> Tree:
        """Create an object and set its status."""
        made = self.ask("POST", path, tree)
        assert made["status"] in (200, 201), made
        if status:
            there = f"{path}/{tree['metadata']['name']}/status"
            assert self.ask("PATCH", there, {"status": status})["status"] == 200
        found: Tree = made["body"]
        return found


def _lines(answer: http.client.HTTPResponse) -> list[Tree]:
    """Return the events of a watch up to the end of the initial state."""
    lines = []
    for line in answer:
        lines.append(json.loads(line))
        if lines[-1]["type"] == "BOOKMARK":
            break
    return lines


def build(api: Api, metrics: str) -> None:
    """Create objects so that every controller has work."""
    core, here = "/api/v1", "/api/v1/namespaces/recorded"
    for name in ("recorded", "recorded-ending"):
        api.make(f"{core}/namespaces", _named(name))
        api.make(f"{core}/namespaces/{name}/serviceaccounts", _named("default"))
    ranges = {"spec": {"cidrs": ["10.255.0.0/24"]}}
    api.make("/apis/networking.k8s.io/v1/servicecidrs", {**_named("recorded"), **ranges})
    _nodes(api)
    since = {"startTime": "2026-01-01T00:00:00Z"}
    _pod(api, "web-1", "node-a", {**_ready("True"), **since, "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]})
    _pod(api, "web-2", "node-a", {**_ready("False"), **since, "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}]})
    _pod(api, "evicted", "node-b", {**_ready("True"), **since, "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]})
    _pod(api, "lost", "node-gone", {})
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    api.make(f"{here}/services", {**_named("web"), "spec": {"selector": {"app": "web"}, "ports": ports}})
    api.make(f"{here}/services", {**_named("plain"), "spec": {"ports": [{"port": 80}]}})
    subset = {"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 80}]}
    api.make(f"{here}/endpoints", {**_named("plain"), "subsets": [subset]})
    empty = {**_named("empty"), "addressType": "IPv4", "endpoints": [], "ports": []}
    api.make("/apis/discovery.k8s.io/v1/namespaces/recorded/endpointslices", empty)
    _scaled(api)
    _requests(api)
    _custom(api, metrics)
    event = {"involvedObject": {"kind": "Pod", "namespace": "recorded", "name": "web-1"}, "reason": "Recorded"}
    api.make(f"{here}/events", {**_named("event"), **event, "message": "made for the record", "type": "Normal"})
    api.make("/apis/coordination.k8s.io/v1/namespaces/recorded/leases", {**_named("empty"), "spec": {}})
    api.make(f"{core}/namespaces/recorded-ending/configmaps", {**_named("kept"), "data": {"a": ""}})
    api.ask("DELETE", f"{core}/namespaces/recorded-ending")


def _nodes(api: Api) -> None:
    taint = {"key": "recorded", "effect": "NoExecute"}
    for name, spec in (("node-a", {}), ("node-b", {"taints": [taint]})):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, **_ready("True")}
        api.make("/api/v1/nodes", {**_named(name), "spec": spec}, {k: v for k, v in status.items() if k != "phase"})
        lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}
        api.make("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", {**_named(name), "spec": lease})


def _pod(api: Api, name: str, node: str, status: Tree) -> None:
    container = {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}
    container["resources"] = {"requests": {"cpu": 1, "memory": "100Mi"}}
    meta = {**_named(name), "metadata": {"name": name, "labels": {"app": "web"}}}
    api.make(
        "/api/v1/namespaces/recorded/pods", {**meta, "spec": {"nodeName": node, "containers": [container]}}, status
    )


def _scaled(api: Api) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    api.make("/apis/apps/v1/namespaces/recorded/deployments", {**_named("web"), "spec": spec}, {"replicas": 1})
    made = {"replicas": 1, "template": {**template, "metadata": {"labels": {"app": "set"}}}}
    spec = {**made, "selector": {"matchLabels": {"app": "set"}}}
    api.make("/apis/apps/v1/namespaces/recorded/replicasets", {**_named("set"), "spec": spec}, {"replicas": 0})
    spec = {**made, "selector": {"app": "set"}}
    api.make("/api/v1/namespaces/recorded/replicationcontrollers", {**_named("set"), "spec": spec})
    target = {"type": "AverageValue", "averageValue": "64Mi"}
    metric = {"type": "Resource", "resource": {"name": "memory", "target": target}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": web, "maxReplicas": 9, "metrics": [metric]}
    api.make("/apis/autoscaling/v2/namespaces/recorded/horizontalpodautoscalers", {**_named("web"), "spec": spec})


def _requests(api: Api) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    name = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:node-a"),
        ]
    )
    signed = x509.CertificateSigningRequestBuilder().subject_name(name)
    made = signed.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    usages = ["digital signature", "client auth"]
    spec = {"request": pem, "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": usages}
    api.make("/apis/certificates.k8s.io/v1/certificatesigningrequests", {**_named("node-a"), "spec": spec})


def _custom(api: Api, metrics: str) -> None:
    free = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": free, "subresources": {"status": {}}}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "recorded.example", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {**_named("widgets.recorded.example"), "spec": spec}
    api.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    services = [("v1", "broken.example", "nobody", 443)]
    if metrics:
        address, _, port = metrics.partition(":")
        _reachable(api, address, int(port))
        services.append(("v1beta1", "metrics.k8s.io", "metrics", int(port)))
    for version_name, group, service, number in services:
        spec = {"group": group, "version": version_name, "groupPriorityMinimum": 100, "versionPriority": 10}
        spec |= {"insecureSkipTLSVerify": True}
        spec["service"] = {"namespace": "kube-system", "name": service, "port": number}
        api.make("/apis/apiregistration.k8s.io/v1/apiservices", {**_named(f"{version_name}.{group}"), "spec": spec})
    time.sleep(5)  # until the definitions are served
    widgets = "/apis/recorded.example/v1/namespaces/recorded/widgets"
    owner = api.make(widgets, {"apiVersion": "recorded.example/v1", "kind": "Widget", **_named("owner")})
    for name, uid in (("kept", owner["metadata"]["uid"]), ("garbage", "00000000-0000-0000-0000-000000000000")):
        reference = {"apiVersion": "recorded.example/v1", "kind": "Widget", "name": "owner", "uid": uid}
        child: Tree = {"apiVersion": "recorded.example/v1", "kind": "Widget", "spec": {"free": None, "form": [None]}}
        api.make(widgets, {**child, "metadata": {"name": name, "ownerReferences": [reference]}})


def _reachable(api: Api, address: str, port: int) -> None:
    system = "namespaces/kube-system"
    api.make(f"/api/v1/{system}/services", {**_named("metrics"), "spec": {"ports": [{"port": port}]}})
    meta = {"metadata": {"name": "metrics", "labels": {"kubernetes.io/service-name": "metrics"}}}
    where = {"addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [{"port": port}]}
    api.make(f"/apis/discovery.k8s.io/v1/{system}/endpointslices", {**meta, **where})


def _ready(status: str) -> Tree:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"phase": "Running", "conditions": [condition]}


def _named(name: str) -> Tree:
    return {"metadata": {"name": name}}


def exchanges(api: Api) -> list[Tree]:
    """Return the exchanges to record."""
    found = [api.ask("GET", path, accept=AGGREGATED) for path in ("/api", "/apis")]
    found += [api.ask("GET", path) for path in ("/api", "/apis", "/api/v1", "/apis/autoscaling/v2")]
    found += [api.ask("GET", path) for path in ("/apis/recorded.example/v1", "/apis/broken.example/v1")]
    found += [api.ask("GET", path) for path in ("/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1")]
    for path in READ:
        found += [api.ask("GET", path), _watched(api, path)]
    found += [api.ask("GET", WIDGETS, accept=META_LIST), _watched(api, WIDGETS, META)]
    found.append(api.ask("GET", "/api/v1/pods", limit="2"))
    inside = "namespaces/recorded"
    found.append(api.ask("GET", f"/apis/recorded.example/v1/{inside}/widgets/owner", accept=META))
    found.append(api.ask("GET", f"/apis/apps/v1/{inside}/deployments/web/scale"))
    found.append(api.ask("GET", f"/apis/metrics.k8s.io/v1beta1/{inside}/pods", labelSelector="app=web"))
    config = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    found += [api.ask("GET", config), *_reviews(api), *_refusals(api)]
    return found


def _watched(api: Api, path: str, accept: str = "") -> Tree:
    initial = {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    return api.ask("GET", path, accept=accept, resourceVersionMatch="NotOlderThan", **initial)


def _reviews(api: Api) -> list[Tree]:
    token = {"spec": {"token": "nobody's"}}
    access = {"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    request = {"spec": {"expirationSeconds": 600}}
    account = "/api/v1/namespaces/recorded/serviceaccounts/default/token"
    granted = api.ask("POST", account, request)
    known = {"spec": {"token": granted["body"]["status"]["token"]}}
    return [
        *(api.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", one) for one in (token, known)),
        api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", access),
        granted,
    ]


def _refusals(api: Api) -> list[Tree]:
    inside = "/api/v1/namespaces/recorded"
    ending = "/api/v1/namespaces/recorded-ending/configmaps"
    stale = {"metadata": {"name": "web-1", "resourceVersion": "1"}}
    return [
        api.ask("GET", f"{inside}/pods/nobody"),
        api.ask("POST", f"{inside}/services", _named("web") | {"spec": {"ports": [{"port": 80}]}}),
        api.ask("POST", f"{inside}/services", _named("-")),
        api.ask("PATCH", f"{inside}/pods/web-1", stale),
        api.ask("POST", ending, _named("late")),
        api.ask("GET", "/apis/nobody.example/v1/things"),
        api.ask("GET", "/api/v1/pods", limit="1", **{"continue": "nonsense"}),
        api.ask("GET", "/api/v1/pods", watch="true", resourceVersion="1", timeoutSeconds="1"),
    ]


def reduced(one: Tree) -> Tree:
    """Return an exchange without redundant API groups, managed fields and values that look like secrets."""
    body = one.get("body")
    if isinstance(body, dict):
        for name in ("items", "groups"):
            if body.get("kind") in ("APIGroupDiscoveryList", "APIGroupList") and isinstance(body.get(name), list):
                body[name] = [group for group in body[name] if _group_name(group) in GROUPS]
    lines = [line["object"] for line in one.get("lines", ()) if "object" in line]
    for obj in (body, *lines, *((body.get("items") or ()) if isinstance(body, dict) else ())):
        if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
            obj["metadata"].pop("managedFields", None)
        if isinstance(obj, dict) and "token" in str(obj.get("status"))[:10]:
            obj["status"]["token"] = "left-out"
        if isinstance(obj, dict) and "token" in str(obj.get("spec"))[:10]:
            obj["spec"]["token"] = "left-out"
    return one


def _group_name(group: Tree) -> str:
    name: str = group.get("name") or group.get("metadata", {}).get("name") or ""
    return name


if __name__ == "__main__":
    server = Api(sys.argv[1], sys.argv[2])
    build(server, sys.argv[3] if len(sys.argv) > 3 else "")
    for exchange in exchanges(server):
        sys.stdout.write(json.dumps(reduced(exchange), separators=(",", ":")) + "\n")
