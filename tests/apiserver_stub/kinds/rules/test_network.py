"""Rules of services, ingresses and other network objects, each violated alone in a valid object."""

from typing import Any

import pytest

I, R, N, F, D = "Invalid", "Required", "NotSupported", "Forbidden", "Duplicate"  # noqa: E741
SERVICE, SLICE, INGRESS, POLICY = (
    "v1/Service", "discovery.k8s.io/v1/EndpointSlice", "networking.k8s.io/v1/Ingress",
    "networking.k8s.io/v1/NetworkPolicy",
)  # fmt: skip
PATH = "spec.rules.0.http.paths.0"
AT_PATH = "spec.rules[0].http.paths[0]"
PLAIN = {
    "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]},
}


@pytest.mark.parametrize(
    ("kind", "changes", "causes"),
    [
        (SERVICE, {"metadata.name": "1a"}, []),
        (SERVICE, {"metadata.name": "a."}, [("metadata.name", I)]),
        (SERVICE, {"spec.ports": []}, [("spec.ports", R)]),
        (SERVICE, {"spec.ports.0.name": ""}, [("spec.ports[0].name", R)]),
        (SERVICE, {"spec.ports.1.name": "http"}, [("spec.ports[1].name", D)]),
        *((POLICY, {"spec.ingress.0.from": [{"ipBlock": {"cidr": cidr}}]}, causes) for cidr, causes in (
            *((good, []) for good in ("10.0.0.0/8", "0.0.0.0/0", "FD00::0/8", "::/0")),
            *((bad, [("spec.ingress[0].from[0].ipBlock.cidr", I)]) for bad in (
                "10.0.0.0/08", "010.0.0.0/8", "10.0.0.1/8", "10.0.0.0", "::ffff:10.0.0.0/104", "fd00::%a/8",
                "fd00::/08",
            )),
        )),
        (SERVICE, {"spec.ports.0.port": 0}, [("spec.ports[0].port", I)]),
        (SERVICE, {"spec.ports.0.targetPort": "A"}, [("spec.ports[0].targetPort", I)] * 2),
        (SERVICE, {"spec.ports.0.nodePort": 70000}, []),  # rejected at allocation
        (SERVICE, {**PLAIN, "spec.type": "x", "spec.externalIPs": ["1.2.3.4"]}, [("spec.type", N)]),
        (SERVICE, {"spec.ports.1.protocol": "TCP"}, [("spec.ports[1]", D)]),
        (SERVICE, {"spec.ports.1.protocol": "ICMP"}, [("spec.ports[1].protocol", N)]),
        (SERVICE, {"spec.ports.1": {"name": "x", "port": 81, "nodePort": 30080}}, [("spec.ports[1].nodePort", D)]),
        (SERVICE, {"spec.ports.0.appProtocol": "a b"}, [("spec.ports[0].appProtocol", I)]),
        (SERVICE, {"spec.selector": {"a b": "c"}}, [("spec.selector", I)]),
        (SERVICE, {"spec.sessionAffinityConfig.clientIP.timeoutSeconds": 0},
         [("spec.sessionAffinityConfig.clientIP.timeoutSeconds", I)]),
        (SERVICE, {"spec.clusterIPs.0": "10.0.0.2"}, [("spec.clusterIPs", I)]),
        (SERVICE, {"spec.clusterIP": "<gone>"}, [("spec.clusterIPs", I)]),
        (SERVICE, {**PLAIN, "spec.clusterIP": "<gone>", "spec.clusterIPs": ["None"]}, [("spec.clusterIPs", I)]),
        (SERVICE, {"spec.clusterIP": "x", "spec.clusterIPs": ["x"]}, [("spec.clusterIPs[0]", I)]),
        (SERVICE, {"spec.clusterIPs.1": "10.0.0.2", "spec.ipFamilyPolicy": "PreferDualStack"},
         [("spec.clusterIPs", I)]),
        (SERVICE, {"spec.ipFamilies": ["IPv4", "IPv4"]}, [("spec.ipFamilies[1]", D)]),
        (SERVICE, {"spec.ipFamilies": ["IPv6"]}, [("spec.clusterIPs[0]", I)]),
        (SERVICE, {"spec.externalIPs.0": "x"}, [("spec.externalIPs[0]", I)]),
        (SERVICE, {"spec.loadBalancerSourceRanges.0": "10.0.0.1/8"}, [("spec.LoadBalancerSourceRanges[0]", I)]),
        (SERVICE, {"spec.clusterIP": "None", "spec.clusterIPs": ["None"]}, [("spec.clusterIPs[0]", I)]),
        (SERVICE, {"spec.externalTrafficPolicy": "Cluster"}, [("spec.healthCheckNodePort", I)]),
        (SERVICE, {"spec.trafficDistribution": "Far"}, [("spec.trafficDistribution", N)]),
        (SERVICE, {"spec.type": "NodePort"}, [
            ("spec.LoadBalancerSourceRanges", F), ("spec.healthCheckNodePort", I), ("spec.loadBalancerClass", F),
        ]),
        (SERVICE, {**PLAIN, "spec.ports.0.nodePort": 30000}, [("spec.ports[0].nodePort", F)]),
        (SERVICE, {**PLAIN, "spec.externalTrafficPolicy": "Local"}, [("spec.externalTrafficPolicy", I)]),
        (SERVICE, {"spec": {"type": "ExternalName"}}, [("spec.externalName", R)]),
        (SERVICE, {"spec": {"type": "ExternalName", "externalName": "A b"}}, [("spec.externalName", I)]),
        (SERVICE, {"spec": {"type": "ExternalName", "externalName": "a", "clusterIPs": ["10.0.0.1"]}},
         [("spec.clusterIPs", F)]),
        ("v1/Endpoints", {"subsets.0.addresses": []}, [("subsets[0]", R)]),
        ("v1/Endpoints", {"subsets.0.addresses.0.ip": "127.0.0.1"}, [("subsets[0].addresses[0].ip", I)]),
        ("v1/Endpoints", {"subsets.0.addresses.0.hostname": "a.b"}, [("subsets[0].addresses[0].hostname", I)]),
        ("v1/Endpoints", {"subsets.0.ports.0.name": ""}, [("subsets[0].ports[0].name", R)]),
        ("v1/Endpoints", {"subsets.0.ports.0.port": 0}, [("subsets[0].ports[0].port", I)]),
        (SLICE, {"endpoints.0.addresses": []}, [("endpoints[0].addresses", R)]),
        (SLICE, {"endpoints.0.addresses.0": "10.0.0.1"}, [("endpoints[0].addresses", I)]),
        (SLICE, {"endpoints.0.hostname": "A"}, [("endpoints[0].hostname", I)]),
        (SLICE, {"ports.1.name": ""}, [("ports[1].name", D)]),
        (SLICE, {"ports.0.port": 65536}, []),  # not checked
        (SLICE, {"endpoints.0.hints.forZones.0.name": "A b"}, [("endpoints[0].hints.forZones[0].name", I)]),
        (SLICE, {"addressType": "MAC"}, [("addressType", N)]),
        (INGRESS, {"spec": {}}, [("spec", I)]),
        (INGRESS, {f"{PATH}.path": "a"}, [(f"{AT_PATH}.path", I)]),
        (INGRESS, {f"{PATH}.path": "/a/../b"}, [(f"{AT_PATH}.path", I)]),
        (INGRESS, {f"{PATH}.pathType": "Regex"}, [(f"{AT_PATH}.pathType", N)]),
        (INGRESS, {f"{PATH}.backend": {}}, [(f"{AT_PATH}.backend", I)]),
        (INGRESS, {f"{PATH}.backend.service.name": "1a"}, []),
        (INGRESS, {f"{PATH}.backend.service.name": "A"}, [(f"{AT_PATH}.backend.service.name", I)]),
        (INGRESS, {f"{PATH}.backend.service.port": {}}, [(f"{AT_PATH}.backend", R)]),
        (INGRESS, {f"{PATH}.backend.service.port.name": "x"}, [(f"{AT_PATH}.backend", I)]),
        (INGRESS, {"spec.rules.0.host": "10.0.0.1"}, [("spec.rules[0].host", I)]),
        (INGRESS, {"spec.rules.0.host": "a.*.b"}, [("spec.rules[0].host", I)]),
        (INGRESS, {"spec.rules.0.http.paths": []}, [("spec.rules[0].http.paths", R)]),
        (INGRESS, {"spec.tls.0.hosts.0": "A"}, [("spec.tls[0].hosts[0]", I)]),
        ("networking.k8s.io/v1/IngressClass", {"spec.controller": "x"}, [("spec.controller", I)]),
        ("networking.k8s.io/v1/IngressClass", {"spec.parameters.namespace": ""}, [("spec.parameters.namespace", I)]),
        (POLICY, {"spec.ingress.0.ports.0.endPort": 70}, [("spec.ingress[0].ports[0].endPort", I)]),
        (POLICY, {"spec.ingress.0.ports.1.endPort": 70}, [("spec.ingress[0].ports[1].endPort", I)]),
        (POLICY, {"spec.ingress.0.from.0": {}}, [("spec.ingress[0].from[0]", R)]),
        (POLICY, {"spec.egress.0.to.0.podSelector": {}}, [("spec.egress[0].to[0]", F)]),
        (POLICY, {"spec.egress.0.to.0.ipBlock.cidr": "10.0.0.1/8"}, [("spec.egress[0].to[0].ipBlock.cidr", I)]),
        (POLICY, {"spec.egress.0.to.0.ipBlock.except.0": "11.0.0.0/8"},
         [("spec.egress[0].to[0].ipBlock.except[0]", I)]),
        (POLICY, {"spec.policyTypes.0": "Sideways"}, [("spec.policyTypes[0]", N)]),
        ("networking.k8s.io/v1/IPAddress", {"metadata.name": "a"}, [("metadata.name", I)]),
        ("networking.k8s.io/v1/IPAddress", {"spec.parentRef.name": ""}, [("spec.parentRef.name", R)]),
        ("networking.k8s.io/v1/ServiceCIDR", {"spec.cidrs": []}, [("spec.cidrs", R)]),
        ("networking.k8s.io/v1/ServiceCIDR", {"spec.cidrs.1": "10.97.0.0/16"}, [("spec.cidrs", I)]),
    ],
)  # fmt: skip
def test_violated_rules_are_reported(validator: Any, kind: str, changes: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(kind, changes) == sorted(causes)


@pytest.mark.parametrize(
    ("kind", "before", "after", "causes"),
    [
        (SERVICE, {}, {"spec.clusterIP": "10.0.0.9", "spec.clusterIPs": ["10.0.0.9"]}, [("spec.clusterIPs[0]", I)]),
        (SERVICE, {}, {"spec.ipFamilies": ["IPv4", "IPv6"], "spec.ipFamilyPolicy": "PreferDualStack"}, []),
        (SERVICE, {}, {"spec": {"type": "ExternalName", "externalName": "a"}}, []),
        (SERVICE, {}, {"spec.loadBalancerClass": "example.org/other"}, [("spec.loadBalancerClass", I)]),
        (SERVICE, {}, {"spec.healthCheckNodePort": 30001}, [("spec.healthCheckNodePort", F)]),
        (SERVICE, {}, {"spec.ports.0.port": 81}, []),
        (SLICE, {}, {"addressType": "FQDN", "endpoints": []}, [("addressType", I)]),
        ("networking.k8s.io/v1/IngressClass", {}, {"spec.controller": "example.org/x"}, [("spec.controller", I)]),
        ("networking.k8s.io/v1/IPAddress", {}, {"spec.parentRef.name": "x"}, [("spec.parentRef", I)]),
        ("networking.k8s.io/v1/ServiceCIDR", {"spec.cidrs": ["10.96.0.0/16"]}, {"spec.cidrs.1": "fd00::/112"}, []),
        ("networking.k8s.io/v1/ServiceCIDR", {}, {"spec.cidrs": ["10.96.0.0/16"]}, [("spec.cidrs", I)]),
    ],
)
def test_invalid_changes_are_reported(
    validator: Any, kind: str, before: Any, after: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(kind, before, after) == causes


@pytest.mark.parametrize(
    ("kind", "point", "causes"),
    [
        (SERVICE, {"ip": "192.0.2.1"}, []),
        (SERVICE, {"ip": "x"}, [("status.loadBalancer.ingress[0].ip", I)]),
        (SERVICE, {"hostname": "192.0.2.1"}, [("status.loadBalancer.ingress[0].hostname", I)]),
        (INGRESS, {"hostname": "A b"}, [("status.loadBalancer.ingress[0].hostname", I)]),
    ],
)
def test_load_balancer_ingress_is_validated(
    validator: Any, kind: str, point: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(kind, {}, {"status": {"loadBalancer": {"ingress": [point]}}}, "status") == causes
