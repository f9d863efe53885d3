"""The components available to admission plugins."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from apiserver_stub.admission.chain import AdmissionMetrics, AdmissionPlugin
from apiserver_stub.admission.configuration import AdmissionConfiguration
from apiserver_stub.admission.services.addresses import ServiceAddresses
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.common.offload import Offload
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.storage.worker import ALONE, Worker
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.egress import EgressSelector
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.authorization import Authorizer

Create = Callable[[str, Tree], Awaitable[None]]
"""Creates an object in a collection (`/api/v1/namespaces`) as the server itself, with all checks of a request; an
existing object of that name is kept. Raises the `ApiError` of the request.
"""


@dataclass(frozen=True, slots=True)
class AdmissionParts:
    """The components available to admission plugins."""

    store: WatchCache
    kinds: ResourceRegistry
    authorizer: Authorizer
    rbac: RBACAuthorizer
    addresses: ServiceAddresses
    resolver: ServiceResolver
    egress: EgressSelector
    offload: Offload
    runtime: Runtime
    options: Parsed
    configuration: AdmissionConfiguration
    create: Create
    metrics: AdmissionMetrics = field(default_factory=AdmissionMetrics)
    worker: Worker = ALONE


BuildPlugin = Callable[[AdmissionParts], AdmissionPlugin]
"""Makes a plugin for one server."""
