"""Each violated rule of Pods is reported with its field and reason."""

from typing import Any

import pytest

POD = "v1/Pod"
MAIN = "spec.containers.0."
AT = "spec.containers[0]."
I, R, N, F, D, X = "Invalid", "Required", "NotSupported", "Forbidden", "Duplicate", "NotFound"  # noqa: E741
VOLUME, AT_VOLUME = "spec.volumes.", "spec.volumes"
TERM = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
ANTI = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
IN_X = {"key": "x", "operator": "In", "values": ["1"]}
SELECTING = {
    "topologyKey": "zone",
    "labelSelector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [IN_X, {"key": "app", "operator": "In", "values": ["web"]}],
    },
}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("path", "value", "causes"),
    [
        ("name", "A", [(f"{AT}name", I)]),
        ("name", "sidecar", [("spec.initContainers[1].name", D)]),
        ("name", "x" * 64, [(f"{AT}name", I)]),
        ("name", "X" * 64, [(f"{AT}name", I)] * 2),
        ("image", "", [(f"{AT}image", R)]),
        ("image", "i ", [(f"{AT}image", I)]),
        ("imagePullPolicy", "Often", [(f"{AT}imagePullPolicy", N)]),
        ("restartPolicy", "Sometimes", [(f"{AT}restartPolicy", N)]),
        ("ports.0.containerPort", 0, [(f"{AT}ports[0].containerPort", R)]),
        ("ports.0.containerPort", 65536, [(f"{AT}ports[0].containerPort", I)]),
        ("ports.0.hostPort", 70000, [(f"{AT}ports[0].hostPort", I)]),
        ("ports.0.name", "1234", [(f"{AT}ports[0].name", I)]),
        ("ports.1.name", "http", [(f"{AT}ports[1].name", D)]),
        ("ports.1", {"containerPort": 9, "hostPort": 80}, [(f"{AT}ports[1].hostPort", D)]),
        ("ports.0.hostIP", "x", []),
        ("securityContext.procMount", "Unmasked", [(f"{AT}securityContext.procMount", I)]),
        ("securityContext.procMount", "", [(f"{AT}securityContext.procMount", N)]),
        ("securityContext.procMount", "Default", []),
        ("env.0.name", "a=b", [(f"{AT}env[0].name", I)]),
        ("env.1.value", "x", [(f"{AT}env[1].valueFrom", I)]),
        ("env.1.valueFrom", {}, [(f"{AT}env[1].valueFrom", I)]),
        ("env.1.valueFrom.configMapKeyRef", {"name": "c", "key": "k"}, [(f"{AT}env[1].valueFrom", I)]),
        ("env.1.valueFrom.fieldRef.fieldPath", "spec.x", [(f"{AT}env[1].valueFrom.fieldRef.fieldPath", I)]),
        ("env.2.valueFrom.fieldRef.fieldPath", "metadata.labels['a b']",
         [(f"{AT}env[2].valueFrom.fieldRef", I)]),
        ("env.3.valueFrom.resourceFieldRef.resource", "limits.x",
         [(f"{AT}env[3].valueFrom.resourceFieldRef.resource", N)]),
        ("env.4.valueFrom.secretKeyRef.key", "a b", [(f"{AT}env[4].valueFrom.secretKeyRef.key", I)]),
        ("env.4.valueFrom.secretKeyRef.name", "A", [(f"{AT}env[4].valueFrom.secretKeyRef.name", I)]),
        ("envFrom.0", {}, [(f"{AT}envFrom", I)]),
        ("envFrom.0.secretRef", {"name": "s"}, [(f"{AT}envFrom", I)]),
        ("envFrom.0.configMapRef.name", "", [(f"{AT}envFrom[0].configMapRef.name", R)]),
        ("resources.requests.cpu", "-1", [(f"{AT}resources.requests[cpu]", I)]),
        ("resources.requests.cpu", "2", [(f"{AT}resources.requests", I)]),
        ("resources.requests.disk", "1", [(f"{AT}resources.requests[disk]", I)] * 2),
        ("resources.requests.pods", "1", [(f"{AT}resources.requests[pods]", I)]),
        ("resources.limits.example\\.org/gpu", "0.5",
         [(f"{AT}resources.limits[example.org/gpu]", I), (f"{AT}resources.requests", I)]),
        ("resources.limits", {"hugepages-2Mi": "4Mi"}, [(f"{AT}resources.limits", R)]),
        ("resources", {"limits": {"hugepages-2Mi": "2Mi"}}, [(f"{AT}resources", F)]),
        ("resources.claims.0.name", "other", [(f"{AT}resources.claims[0]", X)]),
        ("resizePolicy.0.resourceName", "disk", [(f"{AT}resizePolicy", N)]),
        ("resizePolicy.1", {"resourceName": "cpu", "restartPolicy": "NotRequired"}, [(f"{AT}resizePolicy[1]", D)]),
        ("volumeMounts.0.name", "other", [(f"{AT}volumeMounts[0].name", X)]),
        ("volumeMounts.1.mountPath", "/tmp", [(f"{AT}volumeMounts[1].mountPath", I)]),
        ("volumeMounts.0.subPath", "../x", [(f"{AT}volumeMounts.subPath", I)]),
        ("volumeMounts.0.subPath", "/x", [(f"{AT}volumeMounts.subPath", I)]),
        ("volumeMounts.0.subPathExpr", "$(X)", [(f"{AT}volumeMounts[0].subPathExpr", I)]),
        ("volumeMounts.0.mountPropagation", "Upward", [(f"{AT}volumeMounts.mountPropagation", N)]),
        ("volumeMounts.0.mountPropagation", "Bidirectional", [(f"{AT}volumeMounts.mountPropagation", F)]),
        ("volumeMounts.0.recursiveReadOnly", "Enabled", [(f"{AT}volumeMounts.recursiveReadOnly", F)]),
        ("volumeDevices.0.name", "scratch",
         [(f"{AT}volumeDevices[0].name", I)] * 2 + [(f"{AT}volumeMounts[0].name", I)]),
        ("volumeDevices.0.name", "host", [(f"{AT}volumeDevices[0].name", I)]),
        ("volumeDevices.0.name", "", [(f"{AT}volumeDevices[0].name", X), (f"{AT}volumeDevices[0].name", R)]),
        ("volumeDevices.0.devicePath", "/a/../b", [(f"{AT}volumeDevices[0].devicePath", I)]),
        ("volumeDevices.0.devicePath", "/tmp",
         [(f"{AT}volumeDevices[0].devicePath", I), (f"{AT}volumeMounts[0].mountPath", I)]),
        ("livenessProbe.httpGet", "<gone>", [(f"{AT}livenessProbe", R)]),
        ("livenessProbe.tcpSocket", {"port": 1}, [(f"{AT}livenessProbe.tcpSocket", F)]),
        ("livenessProbe.httpGet.port", "no_name", [(f"{AT}livenessProbe.httpGet.port", I)]),
        ("livenessProbe.httpGet.scheme", "FTP", [(f"{AT}livenessProbe.httpGet.scheme", N)]),
        ("livenessProbe.httpGet.httpHeaders.0.name", "a b", [(f"{AT}livenessProbe.httpGet.httpHeaders", I)]),
        ("livenessProbe.successThreshold", 2, [(f"{AT}livenessProbe.successThreshold", I)]),
        ("livenessProbe.periodSeconds", -1, [(f"{AT}livenessProbe.periodSeconds", I)]),
        ("livenessProbe.terminationGracePeriodSeconds", 0,
         [(f"{AT}livenessProbe.terminationGracePeriodSeconds", I)]),
        ("readinessProbe.terminationGracePeriodSeconds", 5,
         [(f"{AT}readinessProbe.terminationGracePeriodSeconds", I)]),
        ("readinessProbe.grpc.port", 0, [(f"{AT}readinessProbe.grpc.port", I)]),
        ("lifecycle.postStart.exec.command", [], [(f"{AT}lifecycle.postStart.exec.command", R)]),
        ("lifecycle.preStop.sleep.seconds", 31, [(f"{AT}lifecycle.preStop.sleep", I)]),
        ("lifecycle.preStop", {}, [(f"{AT}lifecycle.preStop", R)]),
        ("securityContext.privileged", True, [(f"{AT}securityContext", I)]),
        ("securityContext.runAsUser", -1, [(f"{AT}securityContext.runAsUser", I)]),
        ("securityContext.procMount", "All", [(f"{AT}securityContext.procMount", N)]),
        ("securityContext.seccompProfile.localhostProfile", "<gone>",
         [(f"{AT}securityContext.seccompProfile.localhostProfile", R)]),
        ("securityContext.seccompProfile.type", "RuntimeDefault",
         [(f"{AT}securityContext.seccompProfile.localhostProfile", I)]),
        ("securityContext.windowsOptions", {}, [(f"{AT}securityContext.windowsOptions", F)]),
    ],
)  # fmt: skip
def test_container_rules(validator: Any, path: str, value: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(POD, {MAIN + path: value}) == causes


@pytest.mark.parametrize(
    ("path", "value", "causes"),
    [
        ("0.name", "A", [(f"{AT_VOLUME}[0].name", I), (f"{AT}volumeMounts[0].name", X)]),
        ("3.name", "me", [(f"{AT_VOLUME}[5].name", D)]),
        ("3", {"name": "secret"}, []),  # which then is an emptyDir
        ("3.emptyDir", {}, [(f"{AT_VOLUME}[3].secret", F)]),
        ("0.emptyDir.sizeLimit", "-1", [(f"{AT_VOLUME}[0].emptyDir.sizeLimit", F), (f"{AT}volumeMounts[0].name", X)]),
        ("1.hostPath.path", "/a/../b", [(f"{AT_VOLUME}[1].hostPath.path", I)]),
        ("1.hostPath.type", "Pipe", [(f"{AT_VOLUME}[1].hostPath.type", N)]),
        ("2.configMap.name", "", [(f"{AT_VOLUME}[2].configMap.name", R), (f"{AT}volumeMounts[1].name", X)]),
        ("2.configMap.defaultMode", 512,
         [(f"{AT_VOLUME}[2].configMap.defaultMode", I), (f"{AT}volumeMounts[1].name", X)]),
        ("2.configMap.items.0.path", "../x",
         [(f"{AT_VOLUME}[2].configMap.items[0].path", I), (f"{AT}volumeMounts[1].name", X)]),
        ("2.configMap.items.0.mode", -1,
         [(f"{AT_VOLUME}[2].configMap.items[0].mode", I), (f"{AT}volumeMounts[1].name", X)]),
        ("3.secret.secretName", "", [(f"{AT_VOLUME}[3].secret.secretName", R)]),
        ("4.persistentVolumeClaim.claimName", "",
         [(f"{AT_VOLUME}[4].persistentVolumeClaim.claimName", R), (f"{AT}volumeDevices[0].name", X)]),
        ("5.downwardAPI.items.0.fieldRef", "<gone>", [(f"{AT_VOLUME}[5].downwardAPI", R)]),
        ("5.downwardAPI.items.0.fieldRef.fieldPath", "spec.nodeName",
         [(f"{AT_VOLUME}[5].downwardAPI.fieldRef.fieldPath", N)]),
        ("5.downwardAPI.items.1.resourceFieldRef.containerName", "<gone>",
         [(f"{AT_VOLUME}[5].downwardAPI.resourceFieldRef.containerName", R)]),
        ("6.projected.sources.0.serviceAccountToken.expirationSeconds", 60,
         [(f"{AT_VOLUME}[6].projected.sources[0].serviceAccountToken.expirationSeconds", I)]),
        ("6.projected.sources.0.secret", {"name": "s"},
         [(f"{AT_VOLUME}[6].projected.sources[0]", F)]),
        ("6.projected.sources.1.configMap.items", [{"key": "a", "path": "x"}, {"key": "b", "path": "x"}],
         [(f"{AT_VOLUME}[6].projected", I)]),
        ("7.ephemeral.volumeClaimTemplate.spec.accessModes", [],
         [(f"{AT_VOLUME}[7].ephemeral.volumeClaimTemplate.spec.accessModes", R)]),
        ("8.csi.driver", "a_b", [(f"{AT_VOLUME}[8].csi.driver", I)]),
    ],
)  # fmt: skip
def test_volume_rules(validator: Any, path: str, value: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(POD, {VOLUME + path: value}) == sorted(causes)


@pytest.mark.parametrize(
    ("path", "value", "causes"),
    [
        ("spec.containers", [], [("spec.containers", R)]),
        ("spec.restartPolicy", "Maybe", [("spec.restartPolicy", N)]),
        ("spec.dnsPolicy", "Mine", [("spec.dnsPolicy", N)]),
        ("spec.dnsConfig", "<gone>", [("spec.dnsConfig", R)]),
        ("spec.dnsConfig.nameservers", [], [("spec.dnsConfig.nameservers", R)]),
        ("spec.dnsConfig.nameservers", ["1.1.1.1"] * 4, [("spec.dnsConfig.nameservers", I)]),
        ("spec.dnsConfig.nameservers.0", "one", [("spec.dnsConfig.nameservers[0]", I)]),
        ("spec.dnsConfig.searches", ["a"] * 33, [("spec.dnsConfig.searches", I)]),
        ("spec.dnsConfig.searches.0", "a b", [("spec.dnsConfig.searches[0]", I)]),
        ("spec.dnsConfig.options.0.name", "", [("spec.dnsConfig.options[0]", R)]),
        ("spec.hostAliases.0.ip", "x", [("spec.hostAliases[0].ip", I)]),
        ("spec.hostAliases.0.hostnames.0", "A", [("spec.hostAliases[0].hostnames[0]", I)]),
        ("spec.hostname", "a.b", [("spec.hostname", I)]),
        ("spec.subdomain", "-", [("spec.subdomain", I)]),
        ("spec.nodeName", "N", [("spec.nodeName", I)]),
        ("spec.serviceAccountName", "A", [("spec.serviceAccountName", I)]),
        ("spec.priorityClassName", "A", [("spec.priorityClassName", I)]),
        ("spec.runtimeClassName", "A", [("spec.runtimeClassName", I)]),
        ("spec.nodeSelector", {"a b": "c d"}, [("spec.nodeSelector", I), ("spec.nodeSelector", I)]),
        ("spec.activeDeadlineSeconds", 0, [("spec.activeDeadlineSeconds", I)]),
        ("spec.terminationGracePeriodSeconds", -1, [(f"{AT}lifecycle.preStop.sleep", I)]),  # it was set to 1
        ("spec.securityContext.sysctls.0.name", "net.ipv4/conf.eth0", []),
        ("spec.securityContext.sysctls.0.name", "kernel.shm_", [("spec.securityContext.sysctls[0].name", I)]),
        ("spec.securityContext.sysctls.0.name", "kernel.*", [("spec.securityContext.sysctls[0].name", I)]),
        ("spec.securityContext.sysctls.0.name", "Kernel.a", [("spec.securityContext.sysctls[0].name", I)]),
        ("spec.readinessGates.0.conditionType", "a b", [("spec.readinessGates[0].conditionType", I)]),
        ("spec.schedulingGates", [{"name": "a"}, {"name": "a"}],
         [("spec.nodeName", F), ("spec.schedulingGates[1]", D)]),
        ("spec.schedulingGates", [{"name": "a b"}], [("spec.nodeName", F), ("spec.schedulingGates[0]", I)]),
        ("spec.resourceClaims.0.resourceClaimTemplateName", "t", [("spec.resourceClaims[0]", I)]),
        ("spec.resourceClaims.0.resourceClaimName", "<gone>", [("spec.resourceClaims[0]", I)]),
        ("spec.overhead.cpu", "-1", [("spec.overhead.limits[cpu]", I)]),
        ("spec.os.name", "plan9", [("spec.os", N)]),
        ("spec.hostUsers", False, [(f"{AT}volumeDevices", F)]),
        ("spec.shareProcessNamespace", True, []),
        ("spec.hostNetwork", True, [(f"{AT}ports[0].hostPort", I)]),
        ("spec.securityContext.runAsUser", -1, [("spec.securityContext.runAsUser", I)]),
        ("spec.securityContext.fsGroup", -1, [("spec.securityContext.fsGroup", I)]),
        ("spec.securityContext.supplementalGroups.0", -1, [("spec.securityContext.supplementalGroups[0]", I)]),
        ("spec.securityContext.sysctls.0.name", "a b", [("spec.securityContext.sysctls[0].name", I)]),
        ("spec.securityContext.fsGroupChangePolicy", "x", [("spec.securityContext.fsGroupChangePolicy", N)]),
        ("spec.tolerations.0.key", "a b", [("spec.tolerations[0].key", I)]),
        ("spec.tolerations.0.key", "", [("spec.tolerations[0].operator", I)]),
        ("spec.tolerations.0.effect", "NoSchedule", [("spec.tolerations[0].effect", I)]),
        ("spec.tolerations.0.effect", "Never", [("spec.tolerations[0].effect", I), ("spec.tolerations[0].effect", N)]),
        ("spec.tolerations.0.operator", "Gt", [("spec.tolerations[0].value", I)]),
        ("spec.tolerations.0.operator", "Bad", [("spec.tolerations[0].operator", N)]),
        ("spec.tolerations.0.value", "a b", [("spec.tolerations[0].operator", I)]),
        ("spec.tolerations.1.value", "x", [("spec.tolerations[1].operator", I)]),
        ("spec.topologySpreadConstraints.0.maxSkew", 0, [("spec.topologySpreadConstraints[0].maxSkew", I)]),
        ("spec.topologySpreadConstraints.0.whenUnsatisfiable", "ScheduleAnyway",
         [("spec.topologySpreadConstraints[0].minDomains", I)]),
        ("spec.topologySpreadConstraints.1",
         {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
         [("spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}", D)]),
        (f"{TERM}", [], [(TERM, R)]),
        (f"{TERM}.0.matchExpressions.0.values", [], [(f"{TERM}[0].matchExpressions[0].values", R)]),
        (f"{TERM}.0.matchExpressions.0.operator", "Exists", [(f"{TERM}[0].matchExpressions[0].values", F)]),
        (f"{TERM}.0.matchExpressions.0.operator", "Like", [(f"{TERM}[0].matchExpressions[0].operator", I)]),
        (f"{TERM}.0.matchExpressions.0.values", ["a b"], [(f"{TERM}[0].matchExpressions[0].values[0]", I)]),
        (f"{TERM}.0.matchFields.0.key", "spec.x", [(f"{TERM}[0].matchFields[0].key", I)]),
        ("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.0.weight", 0,
         [("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", I)]),
        (f"{ANTI}.0.topologyKey", "a b", [(f"{ANTI}[0].topologyKey", I)]),
        (f"{ANTI}.0.topologyKey", "", [(f"{ANTI}[0].topologyKey", I)] * 2 + [(f"{ANTI}[0].topologyKey", R)]),
        (f"{ANTI}.0.namespaces.0", "A", [(f"{ANTI}[0].namespace", I)]),
        (f"{ANTI}.0.matchLabelKeys", ["a b"], [(f"{ANTI}[0].matchLabelKeys[0]", I)]),
        (f"{ANTI}.0.matchLabelKeys", ["app"], []),
        (f"{ANTI}.0", {**SELECTING, "matchLabelKeys": ["y", "x"]}, []),
        (f"{ANTI}.0", {**SELECTING, "matchLabelKeys": ["y", "app"]}, [(f"{ANTI}[0][1]", I)]),
        (f"{ANTI}.0", {**SELECTING, "mismatchLabelKeys": ["app"]}, []),
        ("spec.topologySpreadConstraints.0.labelSelector.matchExpressions", [IN_X, IN_X], []),
        ("spec.topologySpreadConstraints.0", {**SELECTING, **SPREAD, "matchLabelKeys": ["app"]},
         [("spec.topologySpreadConstraints[0][0]", I)]),
        ("spec.topologySpreadConstraints.0", {**SPREAD, "matchLabelKeys": ["app"]},
         [("spec.topologySpreadConstraints[0].matchLabelKeys", F)]),
        ("spec.initContainers.0.livenessProbe", {"exec": {"command": ["x"]}},
         [("spec.initContainers[0].livenessProbe", F)]),
        ("spec.initContainers.1.startupProbe", {}, [("spec.initContainers[1].startupProbe", R)]),
        ("spec.ephemeralContainers", [{"name": "e", "image": "i"}], [("spec.ephemeralContainers", F)]),
        ("metadata.annotations.controller\\.kubernetes\\.io/pod-deletion-cost", "much",
         [("metadata.annotations[controller.kubernetes.io/pod-deletion-cost]", I)]),
    ],
)  # fmt: skip
def test_pod_rules(validator: Any, path: str, value: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(POD, {path: value}) == sorted(causes)


def test_rules_across_two_fields(validator: Any) -> None:
    shared = {"spec.shareProcessNamespace": True, "spec.hostPID": True}
    assert validator(POD, shared) == [("spec.shareProcessNamespace", I)]
    own_users = {"spec.hostUsers": False, "spec.hostIPC": True}
    assert validator(POD, own_users) == [("spec.HostIPC", F), (f"{AT}volumeDevices", F)]


def test_windows_pod_rejects_linux_fields(validator: Any) -> None:
    causes = validator(POD, {"spec.os.name": "windows", "spec.hostPID": True})
    assert ("spec.hostPID", F) in causes
    assert ("spec.securityContext.fsGroup", F) in causes
    assert (f"{AT}securityContext.seccompProfile", F) in causes


def test_all_problems_are_reported_together(validator: Any) -> None:
    changes = {
        "metadata.name": "A", "metadata.labels": {"a b": "c"}, "spec.hostname": "-", f"{MAIN}image": "",
        f"{MAIN}ports.0.hostPort": -1, "spec.volumes.3.emptyDir": {}, "spec.tolerations.1.value": "x",
    }  # fmt: skip
    assert validator(POD, changes) == [
        ("metadata.labels", I), ("metadata.name", I), (f"{AT}image", R), (f"{AT}ports[0].hostPort", I),
        ("spec.hostname", I), ("spec.tolerations[1].operator", I), ("spec.volumes[3].secret", F),
        ("spec.volumes[7].name", I),
    ]  # fmt: skip


GATED = {"spec.schedulingGates": [{"name": "g"}], "spec.nodeName": "<gone>"}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        ({}, {f"{MAIN}image": "other:1", "spec.initContainers.0.image": "other"}, []),
        ({}, {f"{MAIN}command": ["x"]}, [("spec", F)]),
        ({}, {f"{MAIN}resources.requests.cpu": "50m"}, [("spec", F)]),
        ({}, {"spec.nodeName": "other"}, [("spec", F)]),
        ({"spec.nodeName": "<gone>"}, {"spec.nodeName": "n"}, [("spec", F)]),
        ({}, {"spec.initContainers": []}, [("spec.initContainers", F)]),
        ({}, {"spec.activeDeadlineSeconds": 30}, []),
        ({}, {"spec.activeDeadlineSeconds": 90}, [("spec.activeDeadlineSeconds", I)]),
        ({}, {"spec.activeDeadlineSeconds": "<gone>"}, [("spec.activeDeadlineSeconds", I)]),
        ({}, {"spec.tolerations.0.tolerationSeconds": 9}, []),
        ({}, {"spec.tolerations.2": {"key": "z", "operator": "Exists"}}, []),
        ({}, {"spec.tolerations": []}, [("spec.tolerations", F)]),
        ({}, {"spec.terminationGracePeriodSeconds": 60}, [("spec", F)]),
        ({}, {"spec.schedulingGates": [{"name": "g"}]}, [("spec.schedulingGates[0].name", F)]),
        (GATED, {"spec.schedulingGates": []}, []),
        (GATED, {"spec.nodeSelector": {"disk": "ssd", "cpu": "fast"}}, []),
        (GATED, {"spec.nodeSelector": {"cpu": "fast"}}, [("spec.nodeSelector", I)]),
        (GATED, {"spec.affinity.podAntiAffinity": "<gone>"}, [("spec", F)]),
        ({}, {"spec.nodeSelector": {"disk": "ssd", "cpu": "fast"}}, [("spec", F)]),
        ({}, {"metadata.labels": {"other": "label"}}, []),
    ],
)
def test_pod_update_allows_only_mutable_fields(
    validator: Any, before: Any, after: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(POD, before, after) == causes


DEBUGGED = {"spec.ephemeralContainers": [{"name": "e", "image": "i"}]}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        ({}, DEBUGGED, []),
        (DEBUGGED, {"spec.ephemeralContainers.1": {"name": "f", "image": "i", "targetContainerName": "main"}}, []),
        (DEBUGGED, {"spec.ephemeralContainers": []}, [("spec.ephemeralContainers", F)]),
        (DEBUGGED, {"spec.ephemeralContainers.0.image": "j"}, [("spec.ephemeralContainers", F)]),
        ({}, {"spec.ephemeralContainers": [{"name": "main", "image": "i"}]}, [("spec.ephemeralContainers[0].name", D)]),
        ({}, {"spec.ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "x"}]},
         [("spec.ephemeralContainers[0].targetContainerName", X)]),
        ({}, {"spec.ephemeralContainers": [{"name": "e", "image": "i", "ports": [{"containerPort": 1}]}]},
         [("spec.ephemeralContainers[0].ports", F)]),
    ],
)  # fmt: skip
def test_ephemeral_containers_rules(validator: Any, before: Any, after: Any, causes: list[tuple[str, str]]) -> None:
    assert validator.change(POD, before, after, "ephemeralcontainers") == causes


ENDED: dict[str, Any] = {"image": "i", "imageID": "", "ready": False, "restartCount": 0}
REPORTED, AT_REPORTED = "status.containerStatuses.0", "status.containerStatuses[0]"


@pytest.mark.parametrize(
    ("after", "causes"),
    [
        ({"status.podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, []),
        ({"status.podIPs": [{"ip": "x"}]}, [("status.podIPs[0]", I)]),
        ({"status.podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}, [("status.podIPs", I)]),
        ({"status.podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}, [("status.podIPs", I)]),
        ({"status.podIPs": [{"ip": "x"}, {"ip": "fd00::1"}]},
         [("status.podIPs", "InternalError"), ("status.podIPs", I), ("status.podIPs[0]", I)]),
        ({"status.nominatedNodeName": "A"}, [("status.nominatedNodeName", F), ("status.nominatedNodeName", I)]),
        ({"status.observedGeneration": -1}, [("status.observedGeneration", I)]),
        ({"status.qosClass": "BestEffort"}, [("status.qosClass", I)]),
        ({"status.resourceClaimStatuses": [{"name": "x"}]}, [("status.resourceClaimStatuses[0].name", I)]),
        ({"status.resourceClaimStatuses": [{"name": "gpu"}, {"name": "gpu", "resourceClaimName": "A"}]},
         [("status.resourceClaimStatuses[1].name", D), ("status.resourceClaimStatuses[1].resourceClaimName", I)]),
        ({"status.conditions": [{"type": "a b", "status": "True"}]}, [("status.conditions[0].Type", I)]),
        ({"status.conditions": [{"type": "a", "status": "True", "observedGeneration": -1}]},
         [("status.conditions[0].observedGeneration", I)]),
        ({"status.containerStatuses.0.state": {"running": {}}}, [("status.containerStatuses[0].state", F)]),
        ({"status.containerStatuses.1.state": {"running": {}}}, [("status.containerStatuses[1].state", F)]),
        ({f"{REPORTED}.user": {"linux": {"uid": 0, "gid": -1, "supplementalGroups": [2**31]}}},
         [(f"{AT_REPORTED}.user.linux.gid", I), (f"{AT_REPORTED}.user.linux.supplementalGroups[0]", I)]),
        ({f"{REPORTED}.allocatedResourcesStatus": [{"name": "claim:gpu"}, {"name": "example.org/gpu"}]}, []),
        ({f"{REPORTED}.allocatedResourcesStatus": [{"name": "claim:gpu/other"}, {"name": "example.org/x"}]},
         [(f"{AT_REPORTED}.allocatedResourcesStatus[{index}].name", I) for index in range(2)]),
        ({f"{REPORTED}.allocatedResourcesStatus": [{"name": "cpu", "resources": [
            {"resourceID": "a", "health": "Healthy", "message": ""}, {"resourceID": "a", "health": "Fine"},
        ]}]}, [(f"{AT_REPORTED}.allocatedResourcesStatus[0].resources[0].message", R),
               (f"{AT_REPORTED}.allocatedResourcesStatus[0].resources[1].health", N),
               (f"{AT_REPORTED}.allocatedResourcesStatus[0].resources[1].resourceID", D)]),
        ({"status.ephemeralContainerStatuses": [{**ENDED, "name": "e", "allocatedResourcesStatus": [{"name": "cpu"}]}]},
         [("status.ephemeralContainerStatuses[0].allocatedResourcesStatus", F)]),
    ],
)  # fmt: skip
def test_status_rules(validator: Any, after: Any, causes: list[tuple[str, str]]) -> None:
    before = {
        "spec.restartPolicy": "OnFailure",
        "status.qosClass": "Burstable",
        "status.containerStatuses": [
            {**ENDED, "name": "main", "state": {"terminated": {"exitCode": 0}}},
            {**ENDED, "name": "unknown", "state": {"terminated": {"exitCode": 1}}},
        ],
    }
    assert validator.change("v1/Pod", before, after, "status") == causes


def rule(operator: str, *codes: int, action: str = "Restart") -> dict[str, Any]:
    """A restart rule for exit codes."""
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


@pytest.mark.parametrize(
    ("spec", "exit_code", "allowed"),
    [
        ({"spec.restartPolicy": "OnFailure"}, 1, True),
        ({"spec.restartPolicy": "OnFailure"}, 0, False),
        ({"spec.restartPolicy": "Never"}, 1, False),
        ({f"{MAIN}restartPolicy": "Never"}, 1, False),
        ({"spec.restartPolicy": "Never", f"{MAIN}restartPolicy": "OnFailure"}, 1, True),
        ({f"{MAIN}restartPolicy": "Never", f"{MAIN}restartPolicyRules": [rule("In", 1, 42)]}, 42, True),
        ({f"{MAIN}restartPolicy": "Never", f"{MAIN}restartPolicyRules": [rule("In", 1, 42)]}, 2, False),
        ({f"{MAIN}restartPolicy": "Never", f"{MAIN}restartPolicyRules": [rule("NotIn", 1)]}, 2, True),
        ({"spec.restartPolicy": "Never", "spec.initContainers.0.restartPolicy": "Never",
          "spec.initContainers.0.restartPolicyRules": [rule("In", 9, action="RestartAllContainers")]}, 0, True),
    ],
)  # fmt: skip
def test_terminated_container_state_follows_restart_policy(
    validator: Any, spec: Any, exit_code: int, allowed: bool
) -> None:
    before = {
        **spec,
        "status.containerStatuses": [{**ENDED, "name": "main", "state": {"terminated": {"exitCode": exit_code}}}],
    }
    causes = validator.change(POD, before, {f"{REPORTED}.state": {"running": {}}}, "status")
    assert causes == ([] if allowed else [(f"{AT_REPORTED}.state", F)])


@pytest.mark.parametrize("container", ["containers", "initContainers"])
def test_restart_rules_may_restart_all_containers(validator: Any, container: str) -> None:
    good = {
        f"spec.{container}.0.restartPolicy": "Never",
        f"spec.{container}.0.restartPolicyRules": [rule("In", 42, action="RestartAllContainers")],
    }
    assert validator(POD, good) == []
    wrong = {**good, f"spec.{container}.0.restartPolicyRules.0.action": "Stop"}
    assert validator(POD, wrong) == [(f"spec.{container}[0].restartPolicyRules[0].action", N)]


RESIZABLE = {f"{MAIN}resources.claims": "<gone>", "spec.resourceClaims": "<gone>", "status.qosClass": "Burstable"}
RUNNING = {**ENDED, "name": "main", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        ({}, {f"{MAIN}resources.requests.cpu": "200m"}, []),
        ({"status.containerStatuses": [RUNNING]}, {f"{MAIN}resources.requests.cpu": "200m"}, [("spec", F)]),
        ({"status.containerStatuses": [{**RUNNING, "resources": {}}, RUNNING]},
         {f"{MAIN}resources.requests.cpu": "200m"}, []),
        ({"status.containerStatuses": [{**ENDED, "name": "main", "state": {"waiting": {}}}]},
         {f"{MAIN}resources.requests.cpu": "200m"}, []),
        ({f"{MAIN}resources.limits.cpu": "<gone>"}, {f"{MAIN}resources.requests.cpu": "<gone>"},
         [(f"{AT}resources.requests", F)]),
        ({}, {f"{MAIN}resources.limits.example\\.org/gpu": "2", f"{MAIN}resources.requests.example\\.org/gpu": "2"},
         [("spec", F)]),
        ({}, {f"{MAIN}resizePolicy.0.restartPolicy": "RestartContainer"}, [("spec", F)]),
        ({}, {"spec.containers.1": {"name": "b", "image": "i"}}, [("spec.containers", F)]),
        ({}, {f"{MAIN}name": "other"}, [(f"{AT}name", F)]),
        ({"spec": {"os": {"name": "windows"}, "containers": [{"name": "a", "image": "i"}]}},
         {f"{MAIN}resources.requests.cpu": "200m"}, [("[]", F)]),
        ({}, {"spec.initContainers.0.resources": {"limits": {"example.org/a": "1"}}},
         [("spec.initContainers[0]", F)]),
        ({"spec.initContainers.0.resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
          "spec.initContainers.0.resources": {"requests": {"cpu": "1"}}},
         {"spec.initContainers.0.resources.requests.cpu": "2"}, []),
        ({"spec.resources": {"requests": {"cpu": "1"}}}, {"spec.resources.requests.cpu": "2"}, []),
        ({"spec.resources": {"requests": {"cpu": "1"}}}, {"spec.resources": "<gone>"}, [("spec.resources", F)]),
        ({"spec.resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, f"{MAIN}resources": {}},
         {"spec.resources.requests.cpu": "<gone>"},
         [("spec.resources.requests", F)]),
    ],
)  # fmt: skip
def test_resize_changes_only_cpu_and_memory(validator: Any, before: Any, after: Any, causes: Any) -> None:
    found = validator.change(POD, {**RESIZABLE, **before}, after, "resize")
    assert [cause for cause in found if cause[1] == F] == causes


HOST = {"windowsOptions": {"hostProcess": True}}
WINDOWS = {
    "spec": {
        "os": {"name": "windows"},
        "hostNetwork": True,
        "securityContext": HOST,
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
    }
}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"spec.hostNetwork": False}, [("spec.hostNetwork", I)]),
        ({"spec.securityContext": "<gone>", "spec.containers.0.securityContext": HOST}, [("spec", I)]),
        ({"spec.securityContext": "<gone>", "spec.containers.0.securityContext": HOST,
          "spec.containers.1.securityContext": HOST}, []),
        ({"spec.containers.1.securityContext": {"windowsOptions": {"hostProcess": False}}},
         [("spec", I), ("spec.containers[1].securityContext.windowsOptions.hostProcess", I)]),
        ({"spec.securityContext.windowsOptions.runAsUserName": r"NT AUTHORITY\SYSTEM"}, []),
        *(({"spec.securityContext.windowsOptions.runAsUserName": name},
           [("spec.securityContext.windowsOptions.runAsUserName", I)] * count)
          for name, count in (("", 1), ("a\tb", 1), (r"a\b\c", 1), ("\\u", 1), ("a\\", 1), ("..", 1), ("a@b", 1),
                              ("u" * 105, 1), ("d" * 256 + "\\u", 2), (".d\\. ", 2))),
        ({"spec.containers.0.securityContext": {"windowsOptions": {"gmsaCredentialSpec": ""}}},
         [("spec.containers[0].securityContext.windowsOptions.gmsaCredentialSpec", I)]),
        ({"spec.containers.0.securityContext": {"windowsOptions": {"gmsaCredentialSpec": "x" * 65537}}},
         [("spec.containers[0].securityContext.windowsOptions.gmsaCredentialSpec", I)]),
    ],
)  # fmt: skip
def test_windows_options_rules(validator: Any, changes: Any, causes: Any) -> None:
    assert validator(POD, {**WINDOWS, **changes}) == sorted(causes)


PROFILE = (("localhostProfile", I), ("type", N))
WHOLE = {"spec": {"containers": [{"name": "a", "image": "i"}], "resources": {}}}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec.resources.requests": {"cpu": "1"}}, []),
        ({"spec.resources.requests": {"pods": "1"}}, [("spec.resources.requests[pods]", N)]),
        ({"spec.resources.limits": {"x": "1"}}, [("spec.resources.limits[x]", I)]),
        ({"spec.resources.requests": {"cpu": "1"}, "spec.os": {"name": "windows"}}, [("spec.resources", F)]),
        ({"spec.resources.limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}},
         [("spec.resources.limits[hugepages-2Mi]", I), ("spec.resources.requests[hugepages-2Mi]", I)]),
        ({"spec.resources.requests": {"cpu": "1"}, "spec.containers.0.resources": {"requests": {"cpu": "2"}}},
         [("spec.resources.requests[cpu]", I)]),
        ({"spec.resources.limits": {"cpu": "1"}, "spec.containers.0.resources": {"limits": {"cpu": "2"}}},
         [("spec.resources.containers[0][cpu].limits", I), ("spec.resources.requests", I)]),
        ({"spec.overhead": {"hugepages-2Mi": "2Mi"}}, [("spec.overhead", F)]),
    ],
)  # fmt: skip
def test_pod_level_resources_rules(validator: Any, changes: Any, causes: Any) -> None:
    assert validator(POD, {**WHOLE, **changes}) == causes


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({f"{MAIN}securityContext": {"seccompProfile": {"type": "x", "localhostProfile": "../x"}}},
         [(f"{AT}securityContext.seccompProfile.{name}", reason) for name, reason in PROFILE]),
        ({f"{MAIN}securityContext": {"appArmorProfile": {"type": "x", "localhostProfile": "a"}}},
         [(f"{AT}securityContext.appArmorProfile.type", N)]),
        ({f"{MAIN}securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "/a/../b"}}}, []),
        ({f"{MAIN}securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}},
         [(f"{AT}securityContext.appArmorProfile.localhostProfile", I)]),
        ({f"{MAIN}readinessProbe": {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 0}},
         [(f"{AT}readinessProbe.terminationGracePeriodSeconds", I)] * 2),
        ({f"{MAIN}envFrom": [{}, {}]}, [(f"{AT}envFrom", I)] * 2),
        ({f"{MAIN}volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "/a/.."}],
          "spec.volumes": [{"name": "v", "emptyDir": {}}]}, [(f"{AT}volumeMounts.subPath", I)] * 2),
        ({"spec.initContainers": [{"name": "i", "image": "i", "restartPolicyRules": [{"action": "x"}]}]},
         [("spec.initContainers[0].restartPolicy", R)]),
        ({"spec.dnsPolicy": "None", "spec.dnsConfig": {"options": [{"name": ""}]}},
         [("spec.dnsConfig.nameservers", R)]),
        ({"spec.volumes": [{"name": "v", "image": {}}]}, [("spec.volumes[0].image.reference", R)]),
        ({"metadata.name": "A", "spec.volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}}]},
         [("metadata.name", I), ("spec.volumes[0].name", I)]),
        ({"metadata.name": "a", "spec.volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "a-v"}}]},
         [("spec.volumes[1].persistentVolumeClaim.claimName", I)]),
    ],
)  # fmt: skip
def test_minimal_pod_rules(validator: Any, changes: Any, causes: Any) -> None:
    assert validator(POD, {"spec": {"containers": [{"name": "a", "image": "i"}]}, **changes}) == causes
