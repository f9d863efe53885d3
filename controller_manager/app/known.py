"""Every controller of the control plane this one stands in for, by the names users write in `--controllers`."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Known(NamedTuple):
    """A controller: its name, the name it used to have, and whether it runs unless told otherwise."""

    name: str
    alias: str = ""
    default_on: bool = True


# API version 1.36.
KNOWN: tuple[Known, ...] = (
    Known("bootstrap-signer-controller", "bootstrapsigner", default_on=False),
    Known("certificatesigningrequest-approving-controller", "csrapproving"),
    Known("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    Known("certificatesigningrequest-signing-controller", "csrsigning"),
    Known("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    Known("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    Known("cronjob-controller", "cronjob"),
    Known("daemonset-controller", "daemonset"),
    Known("deployment-controller", "deployment"),
    Known("device-taint-eviction-controller"),
    Known("disruption-controller", "disruption"),
    Known("endpoints-controller", "endpoint"),
    Known("endpointslice-controller", "endpointslice"),
    Known("endpointslice-mirroring-controller", "endpointslicemirroring"),
    Known("ephemeral-volume-controller", "ephemeral-volume"),
    Known("garbage-collector-controller", "garbagecollector"),
    Known("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    Known("job-controller", "job"),
    Known("kube-apiserver-serving-clustertrustbundle-publisher-controller"),
    Known("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    Known("namespace-controller", "namespace"),
    Known("node-ipam-controller", "nodeipam"),
    Known("node-lifecycle-controller", "nodelifecycle"),
    Known("node-route-controller", "route"),
    Known("persistentvolume-attach-detach-controller", "attachdetach"),
    Known("persistentvolume-binder-controller", "persistentvolume-binder"),
    Known("persistentvolume-expander-controller", "persistentvolume-expander"),
    Known("persistentvolume-protection-controller", "pv-protection"),
    Known("persistentvolumeclaim-protection-controller", "pvc-protection"),
    Known("pod-garbage-collector-controller", "podgc"),
    Known("podcertificaterequest-cleaner-controller"),
    Known("replicaset-controller", "replicaset"),
    Known("replicationcontroller-controller", "replicationcontroller"),
    Known("resourceclaim-controller", "resource-claim-controller"),
    Known("resourcepoolstatusrequest-controller"),
    Known("resourcequota-controller", "resourcequota"),
    Known("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    Known("selinux-warning-controller", default_on=False),
    Known("service-cidr-controller"),
    Known("service-lb-controller", "service"),
    Known("serviceaccount-controller", "serviceaccount"),
    Known("serviceaccount-token-controller", "serviceaccount-token"),
    Known("statefulset-controller", "statefulset"),
    Known("storage-version-migrator-controller"),
    Known("storageversion-garbage-collector-controller", "storage-version-gc"),
    Known("taint-eviction-controller"),
    Known("token-cleaner-controller", "tokencleaner", default_on=False),
    Known("ttl-after-finished-controller", "ttl-after-finished"),
    Known("ttl-controller", "ttl"),
    Known("validatingadmissionpolicy-status-controller"),
    Known("volumeattributesclass-protection-controller"),
)


def known_names(known: Iterable[Known] = KNOWN) -> Mapping[str, str]:
    """The present name of each controller, by that and by its alias."""
    return {name: one.name for one in known for name in (one.name, one.alias) if name}
