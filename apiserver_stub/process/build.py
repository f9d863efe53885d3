"""Puts an API server together from its options, without sockets: for the process as for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

from apiserver_stub.admission import (
    Admission,
    AdmissionConfiguration,
    AdmissionMetrics,
    AdmissionParts,
    AdmissionPlugin,
    MakePlugin,
    enabled,
)
from apiserver_stub.admission.services.addresses import ServiceAddresses
from apiserver_stub.apis.aggregation import REGISTRATION, Aggregation, ExtensionServers, ProxyPair, no_pair
from apiserver_stub.apis.apiextensions.custom_resources import CustomResources
from apiserver_stub.apis.kubelet import KubeletParts, KubeletSubresources
from apiserver_stub.apis.openapi import Media
from apiserver_stub.authn.authentication import Authentication, AuthenticationParts, build_authentication
from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.impersonation import Impersonation
from apiserver_stub.authn.tokens import authentication_reviews
from apiserver_stub.authz.access_reviews import AccessReviews
from apiserver_stub.authz.authorization import Authorization, AuthorizationParts, build_authorization
from apiserver_stub.authz.reviews import Reviews
from apiserver_stub.bootstrap import HOOKS
from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.bootstrap.unreadable import remove_unreadable_at
from apiserver_stub.common.flags import (
    CBOR,
    COMPRESSION,
    CONSTRAINED_IMPERSONATION,
    IDENTITY,
    SHARDS,
    STORAGE_VERSIONS,
    STREAMING_LISTS,
    UNSAFE_DELETION,
    AdmissionOptions,
    AggregationOptions,
    ApiOptions,
    AuditOptions,
    EgressOptions,
    FlowControlOptions,
    KubeletOptions,
    NetworkOptions,
    ServerFeatureOptions,
    ServingOptions,
    StorageOptions,
    TokenOptions,
    TracingOptions,
)
from apiserver_stub.common.offload import Offload
from apiserver_stub.encode import cbor
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache, RepresentationMetrics
from apiserver_stub.flow_control import MANAGER, FlowControlParts, build_flow_control
from apiserver_stub.kinds.registry import ResourceChange, built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.process.lifecycle import ApiServer, Component, address_of
from apiserver_stub.process.service_accounts import ServiceAccounts, mark_used
from apiserver_stub.process.storage_factory import StorageFactory
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.audit import Auditing, Sender, open_auditing
from apiserver_stub.request.telemetry import ShardedWatches, Telemetry
from apiserver_stub.request.tracing import RequestTracer, request_tracer
from apiserver_stub.server.component_statuses import Ask, ComponentStatuses
from apiserver_stub.server.handler_chain import Filters, Handlers, Server
from apiserver_stub.server.health import StartProgress
from apiserver_stub.server.identity import ServerIdentity
from apiserver_stub.server.non_resource import NonResourceHandler, process_routes
from apiserver_stub.server.storage_versions import RESOURCE as STORAGE_VERSION_RESOURCE
from apiserver_stub.server.storage_versions import StorageVersions
from apiserver_stub.storage.interface import Storage
from apiserver_stub.storage.worker import ALONE, INDICATORS, METRICS, Worker
from apiserver_stub.verbs import Features, Limits, RequestScope, Verbs
from apiserver_stub.verbs.conversion import RowConversions
from apiserver_stub.verbs.decode import read_new
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.webhooks.client import WebhookClient
from apiserver_stub.webhooks.egress import EgressSelector, egress_selector
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.component.options import MetricsOptions, ProfilingOptions
from controller_manager.common.component.pages import Profiling
from controller_manager.common.component.process_metrics import register_process_metrics
from controller_manager.common.options.command_line import reported_version
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.authentication import RequestHeaderConfig
from controller_manager.common.serving.health import Health
from controller_manager.common.transport.dialer import Dialer

_CATCH_UP = 3.0  # seconds that a request waits for writes answered by other processes; reads wait longer themselves
_AUDIT_ATTEMPTS = 300.0  # seconds of all attempts to send events
_ALONE: Mapping[str, Ask] = MappingProxyType({})
_NO_PLUGINS: Mapping[str, MakePlugin] = MappingProxyType({})


class _Assembly:
    """The components of one server, each created on first use. `parts` returns those with a lifecycle in order."""

    def __init__(
        self,
        options: Parsed,
        runtime: Runtime,
        storage: Storage | None,
        components: Mapping[str, Ask],
        certificates: ClientCertificates,
        profiling: Profiling,
        proxy_pair: ProxyPair,
        admission_plugins: Mapping[str, MakePlugin],
        worker: Worker,
    ) -> None:
        self.options = options
        self.worker = worker
        self.runtime = runtime
        self.serving, self.features = options[ServingOptions], options[ServerFeatureOptions]
        self.offload = Offload()
        self.kinds = built_in(self._is_served, self.features.enabled)
        self.objects = Objects(
            lambda request: self.server.handle(request), lambda path: remove_unreadable_at(self.own_scope, path)
        )
        self.storage = StorageFactory(options, storage, self.kinds, self.egress.etcd, runtime)
        self._components = components
        self._certificates = certificates
        self._profiling = profiling
        self._proxy_pair = proxy_pair
        self._own_plugins = admission_plugins

    def api_server(self) -> ApiServer:
        """Return the server."""
        return ApiServer(self.server, self.own_scope, self.progress, self.options, self.parts())

    def parts(self) -> Sequence[Component]:
        """Return the parts in the order of opening; they are closed in reverse order."""
        authorization, authentication = self.authorization, self.authentication
        aggregation, definitions, flow_control = self.aggregation, self.custom_resources, self.flow_control
        auditing, store = self.auditing, self.store
        return (
            Component(close=_at_once(self.offload.close)),
            Component(close=self.egress.close),
            Component(self.kubelets.open, close=self.kubelets.close),
            *self._optional_parts(),
            Component(run=auditing.run, close=auditing.close),
            Component(store.start, run=store.pack, close=store.close),
            Component(_at_once(authorization.read), run=authorization.run, close=authorization.close),
            Component(run=authentication.run, close=authentication.close),
            Component(definitions.read, run=definitions.run, close=definitions.close),
            Component(self._repair_addresses, self._repair_addresses),
            Component(_at_once(aggregation.read), self._settle_aggregation, aggregation.run, aggregation.close),
            Component(_at_once(flow_control.read), flow_control.settle, flow_control.run),
            *(Component(_at_once(plugin.read), run=plugin.run, close=plugin.close) for plugin in self.plugins),
            *self._identity_parts(),
        )

    def _identity_parts(self) -> Iterator[Component]:
        """Yield the parts that publish the identity of this server, if the features are enabled."""
        if not self.features.enabled(IDENTITY):
            return
        identity = ServerIdentity(self.objects, self.store, self.runtime.log("identity"), self.worker.number)
        yield Component(settle=identity.settle, run=identity.run, close=identity.close)
        if self.features.enabled(STORAGE_VERSIONS) and self.kinds.find(*STORAGE_VERSION_RESOURCE):
            yield Component(settle=StorageVersions(identity.id, self.objects, self.kinds).settle)

    def _optional_parts(self) -> Iterator[Component]:
        """Yield the parts below the store that flags enable."""
        if (signer := self.accounts.external) is not None:
            yield Component(self.accounts.open, run=signer.run, close=signer.close)
        if (tracer := self.tracer) is not None:
            yield Component(run=tracer.run, close=tracer.close)
        yield from self.storage.parts()

    def _is_served(self, info: ResourceInfo) -> bool:
        if info.gate and not self.features.enabled(info.gate):
            return False
        return self.options[ApiOptions].serves(info.group, info.version, info.plural)

    @cached_property
    def egress(self) -> EgressSelector:
        """The dialers of networks."""
        file = self.options[EgressOptions].egress_selector_config_file
        return egress_selector(file, self.runtime.registry, self.runtime.log("egress"))

    @cached_property
    def tracer(self) -> RequestTracer | None:
        """Creates the spans of requests."""
        file, log = self.options[TracingOptions].tracing_config_file, self.runtime.log("tracing")
        return request_tracer(file, self.runtime.registry, log, self.egress.control_plane)

    @cached_property
    def store(self) -> WatchCache:
        """The objects."""
        return self.storage.watch_cache()

    @cached_property
    def accounts(self) -> ServiceAccounts:
        """The tokens of service accounts."""
        return ServiceAccounts(self.options[TokenOptions], _key_folder(self.options), self.runtime)

    @cached_property
    def authorization(self) -> Authorization:
        """Decides which requests are allowed."""
        parts = AuthorizationParts(self.store, self.runtime, self.egress.control_plane, self.offload.run)
        return build_authorization(self.options, parts)

    @cached_property
    def authentication(self) -> Authentication:
        """Authenticates requests."""
        accounts = self.accounts
        return build_authentication(
            self.options,
            AuthenticationParts(
                self._certificates,
                accounts.tokens(self.store.get, mark_used(self.objects, self.runtime.log("tokens"))),
                accounts.audiences,
                self.authorization.anonymous_paths,
                self.egress,
                self.runtime,
                self.offload,
                self.store.get,
            ),
        )

    @cached_property
    def representations(self) -> RepresentationCache:
        """The cache of encoded objects."""
        found = RepresentationCache(self.store, self.options[StorageOptions].representation_cache_size)
        RepresentationMetrics(found, self.runtime.registry)
        return found

    @cached_property
    def hub(self) -> Hub:
        """The watches."""
        hub = Hub(self.store, self.representations, self.offload)
        self.kinds.subscribe(partial(_end_watches, hub))
        return hub

    @cached_property
    def own_scope(self) -> RequestScope:
        """The request scope of the server's own writes, without admission plugins."""
        return RequestScope(self.store, self.hub, self.kinds, Admission(), offload=self.offload)

    @cached_property
    def addresses(self) -> ServiceAddresses:
        """The addresses and ports of services."""
        network = self.options[NetworkOptions]
        return ServiceAddresses(self.store, network.services, network.node_ports)

    @cached_property
    def plugins(self) -> Sequence[AdmissionPlugin]:
        """The plugins that changes are shown to."""
        wanted = self.options[AdmissionOptions]
        return enabled(
            AdmissionParts(
                self.store,
                self.kinds,
                self.authorization.authorizer,
                self.authorization.rbac,
                self.addresses,
                self.resolver,
                self.egress,
                self.offload,
                self.runtime,
                self.options,
                AdmissionConfiguration.read(
                    wanted.admission_control_config_file, {*wanted.enabled, *self._own_plugins}
                ),
                self.objects.ensure_created,
                self.admission_metrics,
                self.worker,
            ),
            self._own_plugins,
        )

    @cached_property
    def admission_metrics(self) -> AdmissionMetrics:
        """The metrics of admission."""
        return AdmissionMetrics(self.runtime.registry)

    @cached_property
    def verbs(self) -> Verbs:
        """Handles requests for resources."""
        scope, find_token, authorizer = self.scope, self.authentication.find_token, self.authorization.authorizer
        questions = {**authentication_reviews(find_token), **AccessReviews(authorizer, self.offload).table()}
        statuses = ComponentStatuses({**self._components, "etcd-0": _health_of(self.store)})
        answers = {**Reviews(questions, partial(_read_review, scope), self.offload).answers(), **statuses.answers()}
        return Verbs(scope, {("token", "create"): self.accounts.requests().create}, answers)

    @cached_property
    def scope(self) -> RequestScope:
        """The environment of the verbs."""
        features = Features(self.features.enabled(STREAMING_LISTS), self.features.enabled(UNSAFE_DELETION))
        admission = Admission(self.plugins, self.admission_metrics)
        return RequestScope(
            self.store,
            self.hub,
            self.kinds,
            admission,
            Limits(watch=self.serving.min_request_timeout),
            features,
            self.offload,
            RowConversions(self.offload, self.representations),
            ShardedWatches(self.hub.sharded, self.runtime.registry) if self.features.enabled(SHARDS) else None,
            authorizer=self.authorization.authorizer,
        )

    @cached_property
    def negotiator(self) -> ContentNegotiator:
        """Encodes responses."""
        return _negotiator(self.features, self.representations, self.offload)

    @cached_property
    def kubelets(self) -> KubeletSubresources:
        """The subresources served by kubelets, pods and services."""
        parts = KubeletParts(
            self.scope,
            self.authorization.authorizer,
            RequestHeaderConfig(**self.options[AggregationOptions].header_lists()),
            self.runtime,
            self.features.enabled,
            self.negotiator.check,
            self.egress.cluster,
        )
        return KubeletSubresources(self.options[KubeletOptions], parts)

    @cached_property
    def progress(self) -> StartProgress:
        """The progress of startup."""
        hooks = (*HOOKS, REGISTRATION)
        etcd = self.storage.etcd
        unready = None if etcd is None else lambda: etcd.unready
        progress = StartProgress(self.serving.livez_grace_period, lambda: self.store.problem, hooks, unready)
        progress.add_checks(self.health)
        return progress

    @cached_property
    def health(self) -> Health:
        """The health checks."""
        return Health(self.runtime.log("health"))

    @cached_property
    def resolver(self) -> ServiceResolver:
        """Where services lead."""
        by_endpoints = self.options[AggregationOptions].enable_aggregator_routing
        return ServiceResolver(self.store, by_endpoints=by_endpoints)

    @cached_property
    def custom_resources(self) -> CustomResources:
        """Serves custom resource definitions."""
        webhooks = WebhookClient(self.resolver, egress=self.egress)
        return CustomResources(self.own_scope, webhooks, self.runtime.log("definitions"), self.runtime.registry)

    @cached_property
    def aggregation(self) -> Aggregation:
        """The APIs that other servers serve behind this one."""
        return Aggregation(
            self.store,
            self.kinds,
            self.objects,
            ExtensionServers(self.resolver, self._proxy_pair, self.egress.cluster),
            self.options[AggregationOptions],
            self.runtime,
            self.serving.request_timeout,
            self.offload,
        )

    @cached_property
    def flow_control(self) -> FlowControlParts:
        """Limits the number of concurrent requests."""
        options, patience = self.options[FlowControlOptions], self.serving.request_timeout
        return build_flow_control(
            options, self.worker.share, self.store, self.kinds, self._apply_status, patience, self.runtime
        )

    @cached_property
    def auditing(self) -> Auditing:
        """Audits requests."""
        options, webhook = self.options[AuditOptions], partial(_audit_webhook, self.egress.control_plane)
        return open_auditing(options, self.runtime.registry, self.runtime.log("audit"), webhook, self.worker)

    @cached_property
    def server(self) -> Server:
        """The handler chain."""
        self.storage.add_checks(self.health)
        filters = Filters(
            self.authentication,
            self.authorization.of_requests,
            Impersonation(
                self.authorization.authorizer,
                self.runtime.registry,
                constrained=self.features.enabled(CONSTRAINED_IMPERSONATION),
            ),
            self.flow_control.limiter,
            self.auditing.auditor,
            self.tracer,
            None if self.worker.newest is None else partial(self._catch_up, self.worker.newest),
        )
        handlers = Handlers(
            self.health.answer,
            self._pages().answer,
            self.verbs.answer,
            self.serving.request_timeout,
            self.kubelets.handlers,
            self.aggregation.proxy,
            self.custom_resources.serve_changed,
        )
        telemetry, log = Telemetry(self.runtime.registry), self.runtime.log("server")
        return Server(filters, self.kinds, handlers, self.negotiator, telemetry, log)

    def _pages(self) -> NonResourceHandler:
        if self.worker.gather is not None:
            self.worker.registries.update({METRICS: self.runtime.registry, INDICATORS: self.health.indicators})
        address = address_of(self.serving)
        others = {**self.accounts.pages(address), **self.flow_control.pages}
        return NonResourceHandler(
            self.kinds,
            process_routes(self.options, self.runtime, self.health, self._profiling, others, self.worker.gather),
            Media(cbor=self.features.enabled(CBOR)),
            address,
            self.offload.run,
            self.aggregation.discovery,
            self.aggregation.descriptions,
        )

    def _catch_up(self, newest: Callable[[], int]) -> Awaitable[None] | None:
        if self.store.revision >= newest() and self.custom_resources.is_up_to_date:
            return None
        return self._catch_up_with(newest())

    async def _catch_up_with(self, revision: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP):
                await self.store.reached(revision)
        await self.custom_resources.serve_changed()

    async def _apply_status(self, path: str, tree: Tree) -> None:
        await self.objects.apply_status(path, tree, MANAGER)

    async def _settle_aggregation(self) -> None:
        await self.aggregation.settle()
        self.progress.finish(REGISTRATION)

    async def _repair_addresses(self) -> None:
        await self.addresses.allocations.repair(self._remove_address)

    async def _remove_address(self, name: str) -> None:
        with suppress(ApiError):  # the next repair retries
            await self.objects.remove(f"/apis/networking.{GROUP_DOMAIN}/v1/ipaddresses/{name}")


def build(
    options: Parsed,
    runtime: Runtime,
    storage: Storage | None = None,
    components: Mapping[str, Ask] = _ALONE,
    certificates: ClientCertificates | None = None,
    profiling: Profiling | None = None,
    proxy_pair: ProxyPair = no_pair,
    admission_plugins: Mapping[str, MakePlugin] = _NO_PLUGINS,
    worker: Worker = ALONE,
) -> ApiServer:
    """Return the server configured by `options`. A given `storage` replaces the configured one, and several servers may
    share it; `components` appear in ComponentStatus. `certificates` verifies client certificates, `profiling` receives
    the data of the watchdog, `proxy_pair` returns the client certificate for extension servers. `admission_plugins` are
    added by name. `worker` identifies this process among several.

    Raises `ValueError` or `OSError` for unusable files.
    """
    runtime.registry.rules = options[MetricsOptions].rules()
    register_process_metrics(runtime.registry, options[ServerFeatureOptions], reported_version(options))
    certificates = certificates or ClientCertificates()
    profiling = profiling or Profiling(options[ProfilingOptions], runtime.name)
    return _Assembly(
        options, runtime, storage, components, certificates, profiling, proxy_pair, admission_plugins, worker
    ).api_server()


def _at_once(call: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    """Return an async function that makes a synchronous call."""

    async def made() -> None:
        call()

    return made


def _audit_webhook(dialer: Dialer | None, config_file: str, pause: float) -> Sender:
    from apiserver_stub.webhooks.review_client import RetryBackoff, ReviewLimits, ReviewWebhook  # loads the HTTP client

    limits, backoff = ReviewLimits(question=_AUDIT_ATTEMPTS), RetryBackoff(pause, always=True)
    return ReviewWebhook(config_file, "--audit-webhook-config-file", limits, backoff, dialer=dialer)


def _end_watches(hub: Hub, change: ResourceChange) -> None:
    if change.before is not None and change.changes_form:
        hub.end(change.before.storage, change.before.api_version)


def _health_of(store: WatchCache) -> Ask:
    async def ask() -> str:
        return store.problem

    return ask


def _key_folder(options: Parsed) -> Path | None:
    """Return the folder of the server's own key; None if the store is in memory, because tokens need not outlive it."""
    storage = options[StorageOptions]
    if storage.storage_backend == "memory":
        return None
    return Path(options[ServingOptions].cert_dir or storage.data_dir)


async def _read_review(scope: RequestScope, request: APIRequest) -> tuple[Tree, tuple[str, ...]]:
    """Return the review in a request after admission, and its warnings."""
    tree, warnings = await read_new(scope.offload, request)
    return tree, (*warnings, *await scope.admit(request, "create", tree))


def _negotiator(features: ServerFeatureOptions, cache: RepresentationCache, offload: Offload) -> ContentNegotiator:
    if features.enabled(CBOR) and not cbor.available():
        raise ValueError(f"the feature {CBOR} needs the package cbor2; the extra `cbor` of this package brings it")
    return ContentNegotiator(cache, offload, cbor=features.enabled(CBOR), compress=features.enabled(COMPRESSION))
