"""Judges an object by all rules of its kind at once; the rules themselves stand in the files beside this one."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from apiserver_stub.kinds import validate_config as config
from apiserver_stub.kinds import validate_network as network
from apiserver_stub.kinds import validate_pod as pod
from apiserver_stub.kinds import validate_workload as workload
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, same_but
from apiserver_stub.kinds.validate_common import unchanged
from apiserver_stub.kinds.validate_metadata import check_finalizers, check_metadata
from apiserver_stub.kinds.validate_schema import check_schema
from controller_manager.api.errors import Cause

Check = Callable[[Tree, Tree | None], Iterator[Cause]]


def validate(kind: Kind, new: Tree, old: Tree | None) -> list[Cause]:
    """All problems of a new object, or of an update of `old`; none when the list is empty.

    Only the schema has demands on a status, so that an update of nothing else is held to those alone.
    """
    found = list(check_schema(new, kind.schema))
    if old is None or not same_but(("status",), new, old):
        found = [*check_metadata(kind, new, old), *found, *_own_rules(kind, new, old)]
    return list(dict.fromkeys(found))


def _own_rules(kind: Kind, new: Tree, old: Tree | None) -> Iterator[Cause]:
    check = _CHECKS.get(f"{kind.api_version}/{kind.kind}")
    return iter(()) if check is None else check(new, old)


def _namespace(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    yield from check_finalizers(get_in(new, ("spec", "finalizers")), "spec.finalizers")


def _request(new: Tree, old: Tree | None) -> Iterator[Cause]:
    yield from unchanged(new, old, "spec")


_CHECKS: Mapping[str, Check] = MappingProxyType({
    "apiextensions.k8s.io/v1/CustomResourceDefinition": config.check_crd,
    "apps/v1/DaemonSet": workload.check_workload,
    "apps/v1/Deployment": workload.check_deployment,
    "apps/v1/ReplicaSet": workload.check_workload,
    "apps/v1/StatefulSet": workload.check_stateful_set,
    "autoscaling/v1/HorizontalPodAutoscaler": workload.check_autoscaler,
    "autoscaling/v2/HorizontalPodAutoscaler": workload.check_autoscaler,
    "batch/v1/CronJob": workload.check_cron_job,
    "batch/v1/Job": workload.check_job,
    "certificates.k8s.io/v1/CertificateSigningRequest": _request,
    "coordination.k8s.io/v1/Lease": config.check_lease,
    "discovery.k8s.io/v1/EndpointSlice": network.check_endpoint_slice,
    "events.k8s.io/v1/Event": config.check_event,
    "networking.k8s.io/v1/Ingress": network.check_ingress,
    "networking.k8s.io/v1/NetworkPolicy": network.check_network_policy,
    "policy/v1/PodDisruptionBudget": workload.check_disruption_budget,
    "rbac.authorization.k8s.io/v1/ClusterRole": config.check_role,
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": config.check_binding,
    "rbac.authorization.k8s.io/v1/Role": config.check_role,
    "rbac.authorization.k8s.io/v1/RoleBinding": config.check_binding,
    "resource.k8s.io/v1/ResourceSlice": config.check_slice_of_devices,
    "scheduling.k8s.io/v1/PriorityClass": config.check_priority_class,
    "storage.k8s.io/v1/StorageClass": config.check_storage_class,
    "v1/ConfigMap": config.check_config_map,
    "v1/Endpoints": network.check_endpoints,
    "v1/Event": config.check_core_event,
    "v1/Namespace": _namespace,
    "v1/Node": config.check_node,
    "v1/PersistentVolume": config.check_volume,
    "v1/PersistentVolumeClaim": config.check_claim,
    "v1/Pod": pod.check_pod,
    "v1/PodTemplate": pod.check_pod_template,
    "v1/ReplicationController": workload.check_replication_controller,
    "v1/Secret": config.check_secret,
    "v1/Service": network.check_service,
})  # fmt: skip
