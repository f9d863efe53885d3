"""Puts an API server together from its options, without sockets: for the process as for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from apiserver_stub.admission import Admission, AdmissionMetrics, plugins
from apiserver_stub.admission.allocations import Allocations
from apiserver_stub.admission.certificates import Allows
from apiserver_stub.admission.escalation import EscalationCheck
from apiserver_stub.admission.quotas import QUOTAS
from apiserver_stub.admission.services import ServiceAddresses
from apiserver_stub.aggregation import REGISTRATION, Aggregation, ExtensionServers, ProxyPair, no_pair
from apiserver_stub.apiextensions.custom_resources import CustomResources
from apiserver_stub.audit import Sender, open_auditing
from apiserver_stub.authn.authentication import AuthenticationParts, build_authentication
from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.impersonation import Impersonation
from apiserver_stub.authn.tokens import authentication_reviews
from apiserver_stub.authz.access_reviews import AccessReviews
from apiserver_stub.authz.authorization import Authorization, AuthorizationParts, build_authorization
from apiserver_stub.bootstrap import HOOKS, ClusterInfo, ServerAddress, bootstrap
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.component_statuses import Ask, ComponentStatuses
from apiserver_stub.egress import egress_selector
from apiserver_stub.encode import cbor
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache, RepresentationMetrics
from apiserver_stub.flags import (
    CBOR,
    COMPRESSION,
    CONSTRAINED_IMPERSONATION,
    DATABASE,
    SCALE_TO_ZERO,
    STREAMING_LISTS,
    UNSAFE_DELETION,
    AdmissionOptions,
    AggregationOptions,
    AuditOptions,
    EgressOptions,
    EncryptionOptions,
    FeatureOptions,
    FlowControlOptions,
    NetworkOptions,
    ServingOptions,
    StorageOptions,
    TokenOptions,
    TracingOptions,
)
from apiserver_stub.flow_control import MANAGER, FlowControlParts, build_flow_control
from apiserver_stub.kinds.registry import ResourceChange, ResourceRegistry, built_in
from apiserver_stub.non_resource import NonResourceHandler, StartProgress, process_routes
from apiserver_stub.offload import Offload
from apiserver_stub.openapi import Media
from apiserver_stub.pki.addresses import reachable_address
from apiserver_stub.response_headers import with_headers
from apiserver_stub.reviews import Reviews
from apiserver_stub.server import Filters, Handlers, Server
from apiserver_stub.service_accounts import ServiceAccounts, mark_used
from apiserver_stub.service_resolver import ServiceResolver
from apiserver_stub.storage.backend import Backend, MemoryBackend
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import ENCRYPTED, Storage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.telemetry import StorageMetrics, StoredObjects, Telemetry
from apiserver_stub.tracing import request_tracer
from apiserver_stub.verbs import Features, Limits, RequestScope, Verbs
from apiserver_stub.verbs.conversion import RowConversions
from apiserver_stub.verbs.decode import read_new
from apiserver_stub.verbs.update import amend
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.row import decode_error_of
from apiserver_stub.webhooks import WebhookClient
from controller_manager.api.errors import ApiError
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.api.wire import Request, Response
from controller_manager.base.log import Logger
from controller_manager.base.registry import Registry
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import all_of
from controller_manager.component.options import MetricsOptions, ProfilingOptions
from controller_manager.component.pages import Profiling
from controller_manager.component.process_metrics import register_process_metrics
from controller_manager.options import Parsed, reported_version
from controller_manager.serving.authentication import User
from controller_manager.serving.authorization import (
    Attributes,
    Authorizer,
    Decision,
)
from controller_manager.serving.health import Health
from controller_manager.transport.dialer import Dialer

if TYPE_CHECKING:
    from apiserver_stub.encryption.at_rest import EncryptionAtRest

_AUDIT_ATTEMPTS = 300.0  # seconds of all attempts to send events
_UPKEEP = 60.0  # seconds until what every cluster has is looked after again
_ALONE: Mapping[str, Ask] = MappingProxyType({})


async def _nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the server with work of its own: `open` makes it ready before the store is read, `run` works until
    cancelled or done, and `close` lets go of everything once nothing is answered any more.
    """

    open: Callable[[], Awaitable[None]] = _nothing
    run: Callable[[], Coroutine[Any, Any, None]] = _nothing
    close: Callable[[], Awaitable[None]] = _nothing


class ApiServer:
    """One API server: start it, hand requests to `handle`, stop it."""

    def __init__(
        self,
        server: Server,
        store: WatchCache,
        hub: Hub,
        kinds: ResourceRegistry,
        progress: StartProgress,
        options: Parsed,
        offload: Offload,
        allocations: Allocations,
        aggregation: Aggregation,
        objects: Objects,
        custom_resources: CustomResources,
        authorization: Authorization,
        scope: RequestScope,
        flow_control: FlowControlParts,
        parts: Sequence[Part] = (),
    ) -> None:
        self.server = server
        self._handle = with_headers(server.handle, options[ServingOptions])
        self.store = store
        self.scope = scope
        """The environment of writes that nobody asked for."""
        self._hub = hub
        self.kinds = kinds
        """The resources that are served, which may change while the server runs."""
        self._progress = progress
        self._options = options
        self._offload = offload
        self._allocations = allocations
        self._aggregation = aggregation
        self._objects = objects
        self._custom_resources = custom_resources
        self._authorization = authorization
        self._flow_control = flow_control
        self._parts = tuple(parts)

    def handle(self, request: Request) -> Awaitable[Response]:
        """Answer a request."""
        return self._handle(request)

    async def start(self) -> None:
        """Read the store and bring about what every cluster has. Raises `Unusable`."""
        await self.open()
        await self.settle(self._options[ServingOptions].secure_port)

    async def open(self) -> None:
        """Read the store; requests are answered from here on. Raises `Unusable`."""
        for part in self._parts:
            await part.open()
        await self.store.start()
        self._authorization.read()
        await self._custom_resources.read()
        await self._allocations.repair(self._remove_address)
        self._aggregation.read()
        self._flow_control.read()
        self._progress.stored = True

    async def settle(self, port: int, authentication: Mapping[str, str] = MappingProxyType({})) -> None:
        """Bring about what every cluster has; clients reach this server at `port`, and `authentication` is published
        of how it knows them. Done again, it corrects what no longer holds.
        """
        serving = self._options[ServingOptions]
        network = self._options[NetworkOptions]
        address = ServerAddress(network.first_service, _host(serving), port, tuple(map(str, network.services)))
        await bootstrap(self.handle, self.scope, ClusterInfo(address, authentication), self._progress.finish)
        await self._aggregation.settle()
        self._progress.finish(REGISTRATION)
        await self._flow_control.settle()
        await self._allocations.repair(self._remove_address)

    async def run(self) -> None:
        """Do what this server does besides answering, until cancelled."""
        await all_of(self._aggregation.run(), self._custom_resources.run(), *(part.run() for part in self._parts))

    async def load_all(self) -> None:
        """Load, in the thread, what the first definition of a custom resource would wait for."""
        for module in ("apiserver_stub.kinds.structural.expressions", "apiserver_stub.apiextensions.resources"):
            await self._offload.run(partial(import_module, module))

    async def _remove_address(self, name: str) -> None:
        with suppress(ApiError):  # whatever is wrong with it now, the next repair finds it again
            await self._objects.remove(f"/apis/networking.{GROUP_DOMAIN}/v1/ipaddresses/{name}")

    async def keep_settled(self, port: int, authentication: Callable[[], Mapping[str, str]]) -> None:
        """Look after that again and again, until cancelled."""
        while True:
            await asyncio.sleep(_UPKEEP)
            await self.settle(port, authentication())

    def unready(self) -> None:
        """From now on say that requests should go elsewhere."""
        self._progress.stopping = True

    def end_streams(self) -> None:
        """End all watches, and refuse new ones."""
        self._hub.close()

    async def stop(self) -> None:
        """End all watches, finish the writes that were submitted and let go of the store."""
        self.unready()
        self.end_streams()
        self._progress.stored = False
        await self._aggregation.close()
        await self._custom_resources.close()
        await self.store.close()
        for part in reversed(self._parts):
            await part.close()
        self._offload.close()


def build(
    options: Parsed,
    runtime: Runtime,
    storage: Storage | None = None,
    components: Mapping[str, Ask] = _ALONE,
    certificates: ClientCertificates | None = None,
    profiling: Profiling | None = None,
    proxy_pair: ProxyPair = no_pair,
) -> ApiServer:
    """Return the server those options describe, on another `storage` if one is given, which several servers may share;
    `components` of the control plane beside it are shown by their statuses. `certificates` judges those that requests
    bring, `profiling` is what the watchdog of the process tells of, `proxy_pair` is shown to servers of others.

    Raises `ValueError` or `OSError` for files that cannot be used.
    """
    serving, features = options[ServingOptions], options[FeatureOptions]
    runtime.registry.rules = options[MetricsOptions].rules()
    register_process_metrics(runtime.registry, features, reported_version(options))
    profiling = profiling or Profiling(options[ProfilingOptions], runtime.name)
    accounts = ServiceAccounts(options[TokenOptions], _key_folder(options), runtime)
    egress = egress_selector(
        options[EgressOptions].egress_selector_config_file, runtime.registry, runtime.log("egress")
    )
    kinds = built_in()
    storage = storage or _storage(options, kinds, runtime.log("store"))
    tracer = request_tracer(
        options[TracingOptions].tracing_config_file, runtime.registry, runtime.log("tracing"), egress.control_plane
    )
    parts = [Part(close=egress.close)]
    if accounts.external is not None:
        parts.append(Part(accounts.open, accounts.external.run, accounts.external.close))
    if tracer is not None:
        parts.append(Part(run=tracer.run, close=tracer.close))
    encryption = _encryption(options, storage, runtime)
    if encryption is not None:
        parts.append(Part(encryption.open, encryption.run, encryption.close))
        storage = encryption.storage
    store = _store(options[StorageOptions], kinds, storage, runtime.log("store"))
    offload = Offload()
    authorization = build_authorization(options, AuthorizationParts(store, runtime, egress.control_plane, offload.run))
    parts.append(Part(run=authorization.run, close=authorization.close))
    authorizer = authorization.authorizer
    StorageMetrics(store.storage, runtime.registry)
    objects = Objects(lambda request: server.handle(request))
    authentication = build_authentication(
        options,
        AuthenticationParts(
            certificates or ClientCertificates(),
            accounts.tokens(store.get, mark_used(objects, runtime.log("tokens"))),
            accounts.audiences,
            authorization.anonymous_paths,
            egress,
            runtime,
            offload,
            store.get,
        ),
    )
    parts.append(Part(run=authentication.run, close=authentication.close))
    impersonation = Impersonation(authorizer, runtime.registry, constrained=features.enabled(CONSTRAINED_IMPERSONATION))
    representations = RepresentationCache(store, options[StorageOptions].representation_cache_size)
    RepresentationMetrics(representations, runtime.registry)
    hub = Hub(store, representations, offload)
    kinds.subscribe(partial(_end_watches, hub))
    network = options[NetworkOptions]
    own = RequestScope(store, hub, kinds, Admission(), offload=offload)
    addresses = ServiceAddresses(store, network.services, network.node_ports)
    there = plugins.built_in(
        store,
        addresses,
        _allows(authorizer),
        EscalationCheck(authorizer, authorization.rbac),
        partial(amend, own, ("", "v1", QUOTAS)),
        scale_to_zero=features.enabled(SCALE_TO_ZERO),
    )
    admission = Admission(plugins.enabled(there, options[AdmissionOptions]), AdmissionMetrics(runtime.registry))
    questions = {**authentication_reviews(authentication.find_token), **AccessReviews(authorizer).table()}
    statuses = ComponentStatuses({**components, "etcd-0": _health_of(store)})
    verbs = Verbs(
        RequestScope(
            store,
            hub,
            kinds,
            admission,
            Limits(watch=serving.min_request_timeout),
            Features(features.enabled(STREAMING_LISTS), features.enabled(UNSAFE_DELETION)),
            offload,
            RowConversions(offload, representations),
        ),
        {("token", "create"): accounts.requests().create},
        {**Reviews(questions, partial(read_new, offload)).answers(), **statuses.answers()},
    )
    _measure_store(store, kinds, runtime.registry)
    health, progress = (
        Health(runtime.log("health")),
        StartProgress(serving.livez_grace_period, lambda: store.trouble, (*HOOKS, REGISTRATION)),
    )
    progress.checks_in(health)
    if encryption is not None and encryption.has_services:
        health.add("kms-providers", encryption.check, ("healthz", "readyz"))
    resolver = ServiceResolver(store, by_endpoints=options[AggregationOptions].enable_aggregator_routing)
    aggregation = Aggregation(
        store, kinds, objects, ExtensionServers(resolver, proxy_pair, egress.cluster),
        options[AggregationOptions], runtime, serving.request_timeout, offload,
    )  # fmt: skip
    flow_control = build_flow_control(
        options[FlowControlOptions], store, kinds, lambda path, tree: objects.apply_status(path, tree, MANAGER),
        serving.request_timeout, runtime,
    )  # fmt: skip
    webhook = partial(_audit_webhook, egress.control_plane)
    auditing = open_auditing(options[AuditOptions], runtime.registry, runtime.log("audit"), webhook)
    parts.append(Part(run=auditing.run, close=auditing.close))
    server = Server(
        Filters(
            authentication, authorization.of_requests, impersonation, flow_control.limiter, auditing.auditor, tracer
        ),
        kinds,
        Handlers(
            health.answer,
            NonResourceHandler(
                kinds,
                process_routes(
                    options, runtime, health, profiling, {**accounts.pages(_address(serving)), **flow_control.pages}
                ),
                Media(cbor=features.enabled(CBOR)),
                _address(serving),
                offload.run,
                aggregation.discovery,
                aggregation.descriptions,
            ).answer,
            verbs.answer,
            serving.request_timeout,
            aggregated=aggregation.proxy,
        ),
        _negotiator(features, representations, offload),
        Telemetry(runtime.registry),
        runtime.log("server"),
    )
    return ApiServer(
        server, store, hub, kinds, progress, options, offload, addresses.allocations, aggregation, objects,
        CustomResources(own, WebhookClient(resolver, egress=egress), runtime.log("definitions"), runtime.registry),
        authorization, own, flow_control, (Part(run=flow_control.run), *parts),
    )  # fmt: skip


def _audit_webhook(dialer: Dialer | None, config_file: str, pause: float) -> Sender:
    from apiserver_stub.review_webhook import Backoff, ReviewLimits, ReviewWebhook  # loads the HTTP client

    limits, backoff = ReviewLimits(question=_AUDIT_ATTEMPTS), Backoff(pause, always=True)
    return ReviewWebhook(config_file, "--audit-webhook-config-file", limits, backoff, dialer=dialer)


def _end_watches(hub: Hub, change: ResourceChange) -> None:
    if change.before is not None and change.changes_form:
        hub.end(change.before.storage, change.before.api_version)


def _measure_store(store: WatchCache, kinds: ResourceRegistry, registry: Registry) -> None:
    def counts() -> Mapping[str, int]:
        return {kind.storage: store.count(kind.storage) for kind in kinds.all() if kind.persisted}

    StoredObjects(counts, registry)


def _health_of(store: WatchCache) -> Ask:
    async def ask() -> str:
        return store.trouble

    return ask


def _store(options: StorageOptions, kinds: ResourceRegistry, storage: Storage, log: Logger) -> WatchCache:
    retention = Retention(options.watch_cache_window, total=options.watch_cache_size)
    return WatchCache(storage, retention, log=log, ttls=_ttls(options, kinds))


def _ttls(options: StorageOptions, kinds: ResourceRegistry) -> Mapping[str, float]:
    return {kind.storage: options.event_ttl for kind in kinds.all() if kind.strategy.has_ttl}


def _storage(options: Parsed, kinds: ResourceRegistry, log: Logger) -> Storage:
    """Return the storage that is built in."""
    where = options[StorageOptions]
    encrypts = bool(options[EncryptionOptions].encryption_provider_config)
    return embedded_storage(_backend(where, log), _ttls(where, kinds), log, encrypts=encrypts)


def _encryption(options: Parsed, storage: Storage, runtime: Runtime) -> "EncryptionAtRest | None":
    """Return the encryption of a storage, if there is to be any; it is loaded only then."""
    wanted = options[EncryptionOptions]
    if not wanted.encryption_provider_config:
        return None
    from apiserver_stub.encryption.at_rest import EncryptionAtRest

    return EncryptionAtRest(wanted, storage, decode_error_of, runtime)


def embedded_storage(
    backend: Backend,
    ttls: Mapping[str, float] = MappingProxyType({}),
    log: Logger | None = None,
    *,
    encrypts: bool = False,
) -> EmbeddedStorage:
    """Return a storage of API objects over a log; rows that say nothing of it live `ttls` (seconds) by resource. One
    that `encrypts` leaves it to who decrypts to look into objects.
    """
    return EmbeddedStorage(backend, StorageRules(_inspect_plain if encrypts else decode_error_of, ttls), log=log)


def _inspect_plain(data: bytes) -> str:
    return "" if data.startswith(ENCRYPTED) else decode_error_of(data)


def _allows(authorizer: Authorizer) -> Allows:
    async def allows(user: User, verb: str, signer: str) -> bool:
        signers = Attributes(user, verb, "", f"certificates.{GROUP_DOMAIN}", "v1", "signers", name=signer)
        return (await authorizer.authorize(signers)).decision is Decision.ALLOW

    return allows


def _key_folder(options: Parsed) -> Path | None:
    """Return where the server keeps a key of its own; what is in memory only has no use for tokens that outlive it."""
    storage = options[StorageOptions]
    if storage.storage_backend == "memory":
        return None
    return Path(options[ServingOptions].cert_dir or storage.data_dir)


def _negotiator(features: FeatureOptions, cache: RepresentationCache, offload: Offload) -> ContentNegotiator:
    if features.enabled(CBOR) and not cbor.available():
        raise ValueError(f"the feature {CBOR} needs the package cbor2; the extra `cbor` of this package brings it")
    return ContentNegotiator(cache, offload, cbor=features.enabled(CBOR), compress=features.enabled(COMPRESSION))


def _host(serving: ServingOptions) -> str:
    return serving.advertise_address or reachable_address(serving.bind_address)


def _address(serving: ServingOptions) -> str:
    """Return where clients reach the server; empty when the port is chosen only when it starts."""
    host = _host(serving)
    return f"{f'[{host}]' if ':' in host else host}:{serving.secure_port}" if serving.secure_port else ""


def _backend(options: StorageOptions, log: Logger) -> Backend:
    if options.storage_backend == "memory":
        return MemoryBackend()
    return SqliteBackend(options.folder / DATABASE, options.accept_data_loss, log)
