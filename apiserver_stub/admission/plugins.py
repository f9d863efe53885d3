"""The table of admission: which plugin is asked about which requests, in which order."""

from apiserver_stub.admission.autoscalers import refuse_scale_to_zero
from apiserver_stub.admission.certificates import Allows, CertificateRequests, certificate_subject_restriction
from apiserver_stub.admission.chain import ALL, Admission, Operation, Rule, Rules
from apiserver_stub.admission.limit_ranges import LimitRanges
from apiserver_stub.admission.namespaces import NamespaceLifecycle
from apiserver_stub.admission.node_taints import taint_new_node
from apiserver_stub.admission.priorities import Priorities
from apiserver_stub.admission.quotas import ResourceQuotas, Update
from apiserver_stub.admission.runtime_classes import RuntimeClasses
from apiserver_stub.admission.service_accounts import PodAccounts
from apiserver_stub.admission.services import ServiceAddresses
from apiserver_stub.admission.tolerations import default_toleration_seconds
from apiserver_stub.kinds.certificate_request import REQUESTS
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.platform import GROUP_DOMAIN

_CREATE: tuple[Operation, ...] = ("create",)
_UPDATE: tuple[Operation, ...] = ("update",)
_BOTH: tuple[Operation, ...] = ("create", "update")
_ALL = (ALL,)
_PODS, _CLAIMS, _SERVICES = ("pods",), ("persistentvolumeclaims",), ("services",)
_CLASSES = (f"priorityclasses.scheduling.{GROUP_DOMAIN}",)
_AUTOSCALERS = ("horizontalpodautoscalers.autoscaling",)
_REQUESTS = (REQUESTS,)


def built_in(
    store: WatchCache, addresses: ServiceAddresses, allows: Allows, update_quota: Update, *, scale_to_zero: bool = False
) -> Admission:
    """Return the plugins that every server has."""
    namespaces, limits, priorities = NamespaceLifecycle(store.get), LimitRanges(store), Priorities(store)
    accounts, runtimes = PodAccounts(store), RuntimeClasses(store)
    requests, quotas = CertificateRequests(allows), ResourceQuotas(store, update_quota)
    lowest: Rules = () if scale_to_zero else (Rule(refuse_scale_to_zero, _BOTH, _AUTOSCALERS),)
    return Admission(
        mutating=(
            Rule(namespaces.check_protected, ("delete",), ("namespaces",)),
            Rule(namespaces.check_alive, _CREATE, _ALL),
            Rule(limits.admit, _CREATE, _PODS),
            Rule(limits.admit, _UPDATE, _PODS, ("resize",)),
            Rule(accounts.admit, _CREATE, _PODS),
            Rule(priorities.admit, _BOTH, _PODS),
            Rule(default_toleration_seconds, _BOTH, _PODS),
            Rule(runtimes.admit, _CREATE, _PODS),
            Rule(taint_new_node, _CREATE, ("nodes",)),
            Rule(requests.name_sender, _CREATE, _REQUESTS),
        ),
        validating=(
            *lowest,
            Rule(limits.validate, _CREATE, _PODS),
            Rule(limits.validate, _UPDATE, _PODS, ("resize",)),
            Rule(limits.validate, _BOTH, _CLAIMS),
            Rule(priorities.validate, _BOTH, _CLASSES),
            Rule(requests.check_verdict, _UPDATE, _REQUESTS, ("approval", "status")),
            Rule(certificate_subject_restriction, _CREATE, _REQUESTS),
            Rule(quotas.validate, _CREATE, _ALL),
            Rule(quotas.validate, _UPDATE, (*_PODS, *_SERVICES, *_CLAIMS)),
            Rule(quotas.validate, _UPDATE, _PODS, ("resize",)),
        ),
        allocation=(
            Rule(namespaces.check_alive, _CREATE, _ALL),  # which may have ended since
            Rule(requests.date_verdict, _UPDATE, _REQUESTS, ("approval", "status")),
            Rule(addresses.allocate, _BOTH, _SERVICES),
            Rule(addresses.allocate, ("delete",), _SERVICES, _ALL),
        ),
    )
