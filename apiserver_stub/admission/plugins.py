"""The table of admission: which plugin is asked about which requests, in which order."""

from collections.abc import Sequence

from apiserver_stub.admission.certificates import Allows, CertificateRequests, certificate_subject_restriction
from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Operation, Rule, Rules
from apiserver_stub.admission.escalation import EscalationCheck
from apiserver_stub.admission.limit_ranges import LimitRanges
from apiserver_stub.admission.namespaces import NamespaceLifecycle
from apiserver_stub.admission.pod_security import PodSecurity
from apiserver_stub.admission.pods import PodAccounts, Priorities, RuntimeClasses, default_toleration_seconds
from apiserver_stub.admission.quotas import ResourceQuotas, Update
from apiserver_stub.admission.services import ServiceAddresses
from apiserver_stub.authz.rbac.bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from apiserver_stub.flags.admission import DEFAULT_ON, AdmissionOptions
from apiserver_stub.kinds.certificate_request import REQUESTS
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import Cause, invalid
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

# No autoscaler may take the last replicas of its target, unless a feature gate lets it (KEP-2021).

_LOWEST = ("spec", "minReplicas")
_WHY = "Invalid value: 0: must be greater than or equal to 1"


async def refuse_scale_to_zero(attributes: Attributes) -> None:
    """Refuse an autoscaler that would scale to zero; one that already may can still be changed otherwise."""
    kind, old = attributes.kind, attributes.old_object
    if get_in(attributes.object, _LOWEST) == 0 and (old is None or get_in(old, _LOWEST) != 0):
        cause = Cause(reason="FieldValueInvalid", message=_WHY, field="spec.minReplicas")
        raise invalid(kind.group, kind.kind, attributes.name, [cause])


# A new node takes no pods until a controller has seen that it is ready: the usual plug-in TaintNodesByCondition.

_TAINTS = ("spec", "taints")
_NOT_READY = {"key": f"node.{PLATFORM_DOMAIN}/not-ready", "effect": "NoSchedule"}


async def taint_new_node(attributes: Attributes) -> None:
    """Give a node that is created the taint of one that is not ready, unless it has it."""
    node = attributes.tree
    taints = get_in(node, _TAINTS) or []
    if not any({name: one.get(name) for name in _NOT_READY} == _NOT_READY for _, one in dicts(taints)):
        spec = dict(node.get("spec") or {})
        spec["taints"] = [*taints, dict(_NOT_READY)]
        put_in(node, ("spec",), spec)


_CREATE: tuple[Operation, ...] = ("create",)
_UPDATE: tuple[Operation, ...] = ("update",)
_BOTH: tuple[Operation, ...] = ("create", "update")
_ALL = (ALL,)
_PODS, _CLAIMS, _SERVICES = ("pods",), ("persistentvolumeclaims",), ("services",)
_CLASSES = (f"priorityclasses.scheduling.{GROUP_DOMAIN}",)
_AUTOSCALERS = ("horizontalpodautoscalers.autoscaling",)
_REQUESTS = (REQUESTS,)


def built_in(
    store: WatchCache,
    addresses: ServiceAddresses,
    allows: Allows,
    escalation: EscalationCheck,
    update_quota: Update,
    *,
    pod_security: PodSecurity,
    scale_to_zero: bool = False,
) -> Sequence[AdmissionPlugin]:
    """Return the plugins that there are, in the order in which they are asked."""
    namespaces, limits, priorities = NamespaceLifecycle(store.get), LimitRanges(store), Priorities(store)
    accounts, runtimes = PodAccounts(store), RuntimeClasses(store)
    requests, quotas = CertificateRequests(allows), ResourceQuotas(store, update_quota)
    lowest: Rules = () if scale_to_zero else (Rule(refuse_scale_to_zero, _BOTH, _AUTOSCALERS),)
    return (
        AdmissionPlugin("", mutating=(Rule(requests.name_sender, _CREATE, _REQUESTS),), validating=lowest),
        AdmissionPlugin(
            "NamespaceLifecycle",
            mutating=(
                Rule(namespaces.check_protected, ("delete",), ("namespaces",)),
                Rule(namespaces.check_alive, _CREATE, _ALL),
            ),
            allocation=(Rule(namespaces.keep_alive, _CREATE, _ALL),),
        ),
        AdmissionPlugin(
            "LimitRanger",
            mutating=(Rule(limits.admit, _CREATE, _PODS), Rule(limits.admit, _UPDATE, _PODS, ("resize",))),
            validating=(
                Rule(limits.validate, _CREATE, _PODS),
                Rule(limits.validate, _UPDATE, _PODS, ("resize",)),
                Rule(limits.validate, _BOTH, _CLAIMS),
            ),
        ),
        AdmissionPlugin("ServiceAccount", mutating=(Rule(accounts.admit, _CREATE, _PODS),)),
        AdmissionPlugin("TaintNodesByCondition", mutating=(Rule(taint_new_node, _CREATE, ("nodes",)),)),
        pod_security.plugin(),
        AdmissionPlugin(
            "Priority",
            mutating=(Rule(priorities.admit, _BOTH, _PODS),),
            validating=(Rule(priorities.validate, _BOTH, _CLASSES),),
        ),
        AdmissionPlugin("DefaultTolerationSeconds", mutating=(Rule(default_toleration_seconds, _BOTH, _PODS),)),
        AdmissionPlugin("RuntimeClass", mutating=(Rule(runtimes.admit, _CREATE, _PODS),)),
        AdmissionPlugin(
            "CertificateApproval", validating=(Rule(requests.check_verdict, _UPDATE, _REQUESTS, ("approval",)),)
        ),
        AdmissionPlugin(
            "CertificateSigning", validating=(Rule(requests.check_verdict, _UPDATE, _REQUESTS, ("status",)),)
        ),
        AdmissionPlugin(
            "CertificateSubjectRestriction",
            validating=(Rule(certificate_subject_restriction, _CREATE, _REQUESTS),),
        ),
        AdmissionPlugin(
            "ResourceQuota",
            validating=(
                Rule(quotas.validate, _CREATE, _ALL),
                Rule(quotas.validate, _UPDATE, (*_PODS, *_SERVICES, *_CLAIMS)),
                Rule(quotas.validate, _UPDATE, _PODS, ("resize",)),
            ),
        ),
        AdmissionPlugin(
            "",
            mutating=(  # last, since they judge what all others have made of an object
                Rule(escalation.check_role, _BOTH, (ROLES, CLUSTER_ROLES)),
                Rule(escalation.check_binding, _BOTH, (BINDINGS, CLUSTER_BINDINGS)),
            ),
            allocation=(
                Rule(requests.date_verdict, _UPDATE, _REQUESTS, ("approval", "status")),
                Rule(addresses.allocate, _BOTH, _SERVICES),
                Rule(addresses.allocate, ("delete",), _SERVICES, _ALL),
            ),
        ),
    )


def enabled(plugins: Sequence[AdmissionPlugin], options: AdmissionOptions) -> Sequence[AdmissionPlugin]:
    """Return the plugins that the flags leave, in their order. Raises `ValueError` for one that is not there."""
    there = {plugin.name for plugin in plugins}
    for name in options.enable_admission_plugins:
        if name not in there:
            raise ValueError(f"--enable-admission-plugins: this server has no plugin {name}")
    wanted = (DEFAULT_ON | {"", *options.enable_admission_plugins}) - set(options.disable_admission_plugins)
    return [plugin for plugin in plugins if plugin.name in wanted]
