"""Warnings of kube-apiserver 1.36 for valid objects: their fields."""

import base64
import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiserver_stub.kinds.warnings import deprecated_kind, warnings_of

POD, DEPLOYMENT, SERVICE = "v1/Pod", "apps/v1/Deployment", "v1/Service"
SPREAD = "spec.topologySpreadConstraints.0"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
C: dict[str, Any] = {"name": "c", "image": "i"}
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP = "seccomp.security.alpha.kubernetes.io/"


def _ports(*ports: dict[str, Any]) -> dict[str, Any]:
    return {"spec.containers.0.ports": [{"protocol": "TCP", **port} for port in ports]}


def _env(*variables: dict[str, Any]) -> dict[str, Any]:
    return {"spec.containers.0.env": list(variables)}


def _volume(**source: Any) -> dict[str, Any]:
    return {"spec.volumes": [{"name": "v", **source}]}


@pytest.mark.parametrize(
    ("name", "changes", "places"),
    [
        (POD, {}, []),
        (POD, {"metadata.name": "a.b"}, ["metadata.name"]),
        (POD, {"spec.nodeSelector": {"beta.kubernetes.io/os": "linux"}}, ["spec.nodeSelector[beta.kubernetes.io/os]"]),
        (POD, {f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms.0.matchExpressions.0.key":
               "failure-domain.beta.kubernetes.io/zone"},
         [f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key"]),
        (POD, {f"spec.affinity.nodeAffinity.{PREFERRED}.0.preference.matchExpressions.0.values.0": "A b!"},
         [f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].values[0]"]),
        (POD, {f"spec.affinity.podAntiAffinity.{REQUIRED}.0.labelSelector": "<gone>"},
         [f"spec.affinity.podAntiAffinity.{REQUIRED}[0].labelSelector"]),
        (POD, {f"spec.affinity.podAntiAffinity.{PREFERRED}.0.podAffinityTerm.labelSelector": "<gone>"},
         [f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector"]),
        (POD, {f"{SPREAD}.labelSelector": "<gone>"}, ["spec.topologySpreadConstraints[0].labelSelector"]),
        (POD, {f"{SPREAD}.topologyKey": "failure-domain.beta.kubernetes.io/region"},
         ["spec.topologySpreadConstraints[0].topologyKey"]),
        (POD, {"metadata.annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}},
         ["metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]"]),
        (POD, {"metadata.annotations": {f"{SECCOMP}pod": "unconfined"}}, [f"metadata.annotations[{SECCOMP}pod]"]),
        (POD, {"metadata.annotations": {f"{SECCOMP}pod": "unconfined"},
               "spec.securityContext.seccompProfile": {"type": "Unconfined"}}, []),
        (POD, {"metadata.annotations": {f"container.{SECCOMP}prepare": "unconfined"}},
         [f"metadata.annotations[container.{SECCOMP}prepare]"]),
        (POD, {"metadata.annotations": {f"container.{SECCOMP}main": "unconfined"}}, []),
        (POD, {"metadata.annotations": {f"{APP_ARMOR}main": "runtime/default"}},
         [f"metadata.annotations[{APP_ARMOR}main]"]),
        (POD, {"metadata.annotations": {f"{APP_ARMOR}main": "runtime/default"},
               "spec.securityContext.appArmorProfile": {"type": "RuntimeDefault"}}, []),
        (POD, {"metadata.annotations": {f"{APP_ARMOR}main": "runtime/default"},
               "spec.containers.0.securityContext.appArmorProfile": {"type": "Unconfined"}}, []),
        (POD, _volume(gitRepo={"repository": "r"}), ["spec.volumes[0].gitRepo"]),
        (POD, _volume(rbd={"monitors": ["m"], "image": "i"}), ["spec.volumes[0].rbd"]),
        (POD, _volume(ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {
            "requests": {"storage": "1500m"}}}}}),
         ["spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]"]),
        (POD, _volume(configMap={"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}),
         ['volume "v" (ConfigMap "m")']),
        (POD, _volume(configMap={"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "xy"}]}), []),
        (POD, _volume(projected={"sources": [{"secret": {"name": "s", "items": [{"key": "a", "path": "x"}]}},
                                             {"serviceAccountToken": {"path": "x"}}]}), ['volume "v" (Projected)']),
        (POD, _volume(projected={"sources": [{}]}), ['volume "v" (Projected)']),
        (POD, {"spec.hostAliases.1": {"ip": "10.1.1.1"}}, ["spec.hostAliases[1].ip"]),
        (POD, {"spec.hostAliases.0.ip": "010.1.1.1"}, ["spec.hostAliases[0].ip"]),
        (POD, {"spec.dnsConfig.nameservers": ["2001:DB8::1"]}, ["spec.dnsConfig.nameservers[0]"]),
        (POD, {"spec.imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, ["spec.imagePullSecrets[1].name"]),
        (POD, {"spec.imagePullSecrets": [{}]}, ["spec.imagePullSecrets[0].name"]),
        (POD, {"spec.terminationGracePeriodSeconds": -1}, []),  # it was set to 1
        (DEPLOYMENT, {"spec.template.spec.terminationGracePeriodSeconds": -1},
         ["spec.template.spec.terminationGracePeriodSeconds"]),
        (POD, {"spec.overhead": {"memory": "100m"}}, ["spec.overhead[memory]"]),
        (POD, {"spec.containers.0.resources.requests.memory": "128974848500m"},
         ["spec.containers[0].resources.requests[memory]"]),
        (POD, {"spec.containers.0.resources.requests.memory": "128974848000m"}, []),
        (POD, _env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}), ["spec.containers[0].env[1]"]),
        (POD, _env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}), []),
        (POD, _env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)"}), ["spec.containers[0].env[1]"]),
        (POD, _ports({"containerPort": 1}, {"containerPort": 1}), ["spec.containers[0].ports[1]"]),
        (POD, _ports({"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}), []),
        (POD, _ports({"containerPort": 1}, {"containerPort": 1, "hostPort": 5}), ["spec.containers[0].ports[1]"]),
        (POD, _ports({"containerPort": 1, "hostPort": 5}, {"containerPort": 1, "hostPort": 6}), []),
        (POD, _ports({"containerPort": 1, "hostPort": 5}, {"containerPort": 1, "hostPort": 5, "hostIP": "10.0.0.1"}),
         ["spec.containers[0].ports[1]"]),
        (POD, _ports({"containerPort": 1, "hostIP": "10.0.0.1"}), ["spec.containers[0].ports[0]"]),
        (POD, {**_ports({"containerPort": 1, "name": "a"}),
               "spec.initContainers.0.ports": [{"containerPort": 2, "name": "a"}]}, ["spec.containers[0].ports[0]"]),
        (DEPLOYMENT, {}, []),
        (DEPLOYMENT, {"metadata.name": "a.b"}, ["metadata.name"]),
        (DEPLOYMENT, {"spec.template.spec.imagePullSecrets": [{}]}, ["spec.template.spec.imagePullSecrets[0].name"]),
        (DEPLOYMENT, {"spec.template.metadata.annotations": {f"{APP_ARMOR}c": "unconfined"}},
         [f"spec.template.metadata.annotations[{APP_ARMOR}c]"]),
        ("apps/v1/StatefulSet", {"metadata.name": "a.b"}, []),
        ("apps/v1/StatefulSet", {"spec.volumeClaimTemplates.0.spec.resources.requests.storage": "1500m"},
         ["spec.volumeClaimTemplates[0].resources.requests[storage]"]),
        ("apps/v1/StatefulSet", {"spec.revisionHistoryLimit": -1}, ["spec.revisionHistoryLimit"]),
        ("batch/v1/Job", {"spec.completions": 100001, "spec.parallelism": 10001}, ["spec"]),
        ("batch/v1/CronJob", {"metadata.name": "a.b"}, ["metadata.name"]),
        ("batch/v1/CronJob", {"spec.jobTemplate.spec.template.spec.nodeSelector": {"beta.kubernetes.io/arch": "a"}},
         ["spec.jobTemplate.spec.template.spec.nodeSelector[beta.kubernetes.io/arch]"]),
        (SERVICE, {}, ["spec.externalIPs is deprecated and may be ignored", "spec.trafficDistribution"]),
        (SERVICE, {"spec": {"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP",
                            "externalIPs": ["192.0.2.1"]}},
         ["spec.externalIPs is ignored", "spec.sessionAffinity is ignored"]),
        (SERVICE, {"spec": {"externalName": "a.example"}}, ["spec.externalName is ignored"]),
        (SERVICE, {"spec": {"type": "ExternalName", "externalName": "a.example", "externalIPs": ["192.0.2.1"]}},
         ["spec.externalIPs is ignored"]),
        (SERVICE, {"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}},
         ["spec.loadBalancerSourceRanges[0]"]),
        (SERVICE, {"spec": {"clusterIPs": ["fd00:0::1"]}}, ["spec.clusterIPs[0]"]),
        (SERVICE, {"spec": {}, "metadata.annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
         ["the annotation service.kubernetes.io/topology-aware-hints is deprecated"]),
        ("v1/Endpoints", {"subsets.0.addresses.0.ip": "010.0.0.1"}, ["subsets[0].addresses[0].ip"]),
        ("v1/Endpoints", {"subsets.0.addresses.0.ip": "010.0.0.1",
                          "metadata.labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}, []),
        ("discovery.k8s.io/v1/EndpointSlice", {"endpoints.0.addresses": ["::ffff:1.2.3.4"]},
         ["endpoints[0].addresses[0]"]),
        ("discovery.k8s.io/v1/EndpointSlice", {"addressType": "FQDN", "endpoints": []}, ["addressType"]),
        ("networking.k8s.io/v1/Ingress", {"metadata.annotations": {"kubernetes.io/ingress.class": "n"}}, []),
        ("networking.k8s.io/v1/Ingress",
         {"metadata.annotations": {"kubernetes.io/ingress.class": "n"}, "spec.ingressClassName": "<gone>"},
         ['annotation "kubernetes.io/ingress.class" is deprecated, please use \'spec.ingressClassName\' instead']),
        ("networking.k8s.io/v1/NetworkPolicy", {"spec.egress.0.to.0.ipBlock": {"cidr": "10.1.0.0/8"}},
         ["spec.egress[0].to[0].ipBlock.cidr"]),
        ("v1/PersistentVolumeClaim", {"metadata.annotations": {"volume.beta.kubernetes.io/storage-class": "x"}},
         ["metadata.annotations[volume.beta.kubernetes.io/storage-class]"]),
        ("v1/PersistentVolumeClaim", {"spec.resources.requests.storage": "1500m"},
         ["spec.resources.requests[storage]"]),
        ("v1/PersistentVolume", {"spec.persistentVolumeReclaimPolicy": "Recycle"},
         ["spec.persistentVolumeReclaimPolicy"]),
        ("v1/PersistentVolume", {"metadata.annotations": {"volume.beta.kubernetes.io/mount-options": "x"}},
         ["metadata.annotations[volume.beta.kubernetes.io/mount-options]"]),
        ("v1/PersistentVolume", {"spec.rbd": {"monitors": ["m"], "image": "i"}}, ["spec.rbd"]),
        ("storage.k8s.io/v1/StorageClass",
         {"allowedTopologies.0.matchLabelExpressions.0.key": "failure-domain.beta.kubernetes.io/zone"},
         ["allowedTopologies[0].matchLabelExpressions[0].key"]),
        ("storage.k8s.io/v1/CSIStorageCapacity", {"nodeTopology": {"matchLabels": {"beta.kubernetes.io/os": "a"}}},
         ["nodeTopology.matchLabels[beta.kubernetes.io/os]"]),
        ("storage.k8s.io/v1/CSIDriver", {}, ["spec.serviceAccountTokenInSecrets"]),
        ("storage.k8s.io/v1/CSIDriver", {"spec.serviceAccountTokenInSecrets": False}, []),
        ("v1/Node", {"spec.externalID": "x"}, ["spec.externalID"]),
        ("node.k8s.io/v1/RuntimeClass", {"scheduling.nodeSelector": {"beta.kubernetes.io/os": "a"}},
         ["scheduling.nodeSelector[beta.kubernetes.io/os]"]),
        ("v1/ResourceQuota", {"spec.hard": {"cpu": "2", "limits.cpu": "1"}}, ["spec.hard[cpu]"]),
        ("v1/ResourceQuota", {"spec.hard": {"requests.memory": "2Gi", "limits.memory": "2G"}},
         ["spec.hard[requests.memory]"]),
        ("v1/ServiceAccount", {"metadata.annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
         ["metadata.annotations[kubernetes.io/enforce-mountable-secrets]"]),
        ("resource.k8s.io/v1/ResourceSlice", {"spec.driver": "Gpu.example.org"}, ["spec.driver"]),
    ],
)  # fmt: skip
def test_warnings_for_new_objects(validator: Any, name: str, changes: dict[str, Any], places: list[str]) -> None:
    assert _places(warnings_of(validator.kind(name), validator.tree(name, changes), None)) == places


def _places(texts: list[str]) -> list[str]:
    return [text.partition(": ")[0] for text in texts]


@pytest.mark.parametrize(
    ("name", "changes", "generation", "places"),
    [
        (POD, {"spec.terminationGracePeriodSeconds": -1}, 2, []),
        (DEPLOYMENT, {"spec.template.spec.imagePullSecrets": [{}]}, 2, ["spec.template.spec.imagePullSecrets[0].name"]),
        (DEPLOYMENT, {"spec.template.spec.imagePullSecrets": [{}]}, 1, []),
        (DEPLOYMENT, {"metadata.name": "a.b"}, 2, []),
        ("storage.k8s.io/v1/CSIDriver", {}, 1, []),
        ("v1/ServiceAccount", {"metadata.annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, 1, []),
        ("batch/v1/CronJob", {"spec.schedule": "TZ=UTC * * * * *"}, 2, ["spec.schedule"]),
    ],
)
def test_warnings_for_updates(
    validator: Any, name: str, changes: dict[str, Any], generation: int, places: list[str]
) -> None:
    old, new = validator.tree(name, changes), validator.tree(name, changes)
    old["metadata"]["generation"], new["metadata"]["generation"] = 1, generation
    assert _places(warnings_of(validator.kind(name), new, old)) == places


def test_warnings_for_unusual_status_addresses(validator: Any) -> None:
    pod = {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00::1"}]}}
    assert _places(warnings_of(validator.kind(POD), pod, pod, "status")) == ["status.podIPs[1].ip"]
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "010.0.0.1"}, {"hostname": "a"}]}}}
    assert _places(warnings_of(validator.kind(SERVICE), service, service, "status")) == [
        "status.loadBalancer.ingress[0].ip"
    ]


def _pair() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    now = datetime.datetime(2024, 1, 1)  # noqa: DTZ001 - what the builder takes
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now.replace(year=2034))
    certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(certificate).decode(), base64.b64encode(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    ).decode()


def test_tls_secret_with_mismatched_key_gets_a_warning(validator: Any) -> None:
    (certificate, key), (_, other) = _pair(), _pair()

    def warned(first: str, second: str) -> int:
        secret = {"type": "kubernetes.io/tls", "data": {"tls.crt": first, "tls.key": second}}
        return len(warnings_of(validator.kind("v1/Secret"), secret, None))

    assert (warned(certificate, key), warned(certificate, other)) == (0, 1)
    assert (warned("", ""), warned(certificate, ""), warned("aGk=", key)) == (1, 1, 1)


def test_deprecated_kinds_get_a_warning(validator: Any) -> None:
    assert "v1.33" in deprecated_kind(validator.kind("v1/Endpoints"))
    assert deprecated_kind(validator.kind(SERVICE)) == ""
