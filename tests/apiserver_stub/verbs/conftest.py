"""The verbs on a real store in memory, called by path as the handler chain calls them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from apiserver_stub.admission import ALL, Admission, Rule
from apiserver_stub.admission.plugins.certificates import CertificateRequests
from apiserver_stub.admission.plugins.namespaces import NamespaceLifecycle
from apiserver_stub.admission.services.addresses import ServiceAddresses
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.kinds.strategies.certificate_requests import REQUESTS
from apiserver_stub.patch.field_set import paths, render
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import RequestInfo, last_values, resolve
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.verbs import RequestScope, Verbs
from apiserver_stub.verbs.conversion import RowConversions
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.hub import Hub
from controller_manager.common.api.wire import Response
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, AuthorizerAttributes, Decision
from tests.apiserver_stub.api_client import Answer, ApiClient, request_of
from tests.apiserver_stub.memory_backend import MemoryBackend

Tree = dict[str, Any]


class _Signers(AlwaysAllow):
    """Allows everybody to approve and sign, except users who are `denied` a verb for a signer."""

    def __init__(self, denied: list[tuple[str, str, str]]) -> None:
        self._denied = denied

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        if (attributes.user.name, attributes.verb, attributes.name) in self._denied:
            return Authorization(Decision.NO_OPINION)
        return await super().authorize(attributes)


class VerbsClient(ApiClient):
    """Calls the verbs directly; errors are raised."""

    def __init__(self, store: WatchCache, kinds: ResourceRegistry, allocation: Sequence[Rule] = ()) -> None:
        self.store = store
        self.representations = RepresentationCache(store)
        self.hub = Hub(store, self.representations)
        self.kinds = kinds
        self.forms = ContentNegotiator(self.representations)
        self.denied: list[tuple[str, str, str]] = []
        conversions = RowConversions(cache=self.representations)
        self.scope = RequestScope(
            store, self.hub, kinds, self._admission(allocation), conversions=conversions, authorizer=AlwaysAllow()
        )
        self.verbs = Verbs(self.scope)

    def _admission(self, allocation: Sequence[Rule]) -> Admission:
        namespaces, requests = NamespaceLifecycle(self.store.get), CertificateRequests(_Signers(self.denied))
        parts = ("approval", "status")
        return Admission.of(
            mutating=[
                Rule(namespaces.check_protected, ("delete",), ("namespaces",)),
                Rule(namespaces.check_alive, ("create",), (ALL,)),
                Rule(requests.name_sender, ("create",), (REQUESTS,)),
            ],
            validating=[Rule(requests.check_verdict, ("update",), (REQUESTS,), parts)],
            allocation=[Rule(requests.date_verdict, ("update",), (REQUESTS,), parts), *allocation],
        )

    def call(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> APIRequest:
        """Return the request as the verbs get it."""
        request = request_of(method, url, body, headers or {})
        query = last_values(request.query)
        info = RequestInfo.of(method, request.path, query)
        kind, part = resolve(info, self.kinds)
        namespace = info.namespace if kind.namespaced else ""
        return APIRequest(request, User("tester"), info.verb, kind, namespace, info.name, part, query)

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        call = self.call(method, url, body, headers)
        representation = self.forms.check(call)
        return await self.forms.respond(call, representation, await self.verbs.answer(call))


@pytest.fixture(scope="session")
def kinds() -> ResourceRegistry:
    return built_in()


@pytest.fixture
def allocation() -> Callable[[WatchCache], Sequence[Rule]]:
    """The last phase of admission on a store."""
    return allocation_of([ip_network("10.0.0.0/24")], range(30000, 32768))


def allocation_of(networks: Sequence[Any], ports: range) -> Callable[[WatchCache], Sequence[Rule]]:
    """Allocation of addresses and ports for services, on a store."""
    both: Any = ("create", "update")

    def rules(store: WatchCache) -> Sequence[Rule]:
        allocate = ServiceAddresses(store, networks, ports).allocate
        return [Rule(allocate, both, ("services",)), Rule(allocate, ("delete",), ("services",), (ALL,))]

    return rules


@asynccontextmanager
async def started_api(
    kinds: ResourceRegistry, allocation: Callable[[WatchCache], Sequence[Rule]] = lambda _: ()
) -> AsyncIterator[VerbsClient]:
    """The verbs on their own store, with the namespace `default`."""
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention(changes=200))
    await store.start()
    api = VerbsClient(store, kinds, allocation(store))
    await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    yield api
    api.hub.close()
    await store.close()


@pytest.fixture
async def api(
    kinds: ResourceRegistry, allocation: Callable[[WatchCache], Sequence[Rule]]
) -> AsyncIterator[VerbsClient]:
    async with started_api(kinds, allocation) as api:
        yield api


@pytest.fixture
def apply(api) -> Callable[..., Any]:
    """Apply an object as a manager; return the answer."""

    async def ask(url: str, tree: Any, manager: str = "one", query: str = "", form: str = "apply-patch+yaml") -> Answer:
        return await api.patch(f"{url}?fieldManager={manager}&{query}", tree, form)

    return ask


@pytest.fixture
def deployment() -> Callable[..., Tree]:
    """A Deployment with more fields in its spec."""

    def made(**spec: Any) -> Tree:
        labels = {"app": "a"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        whole = {"selector": {"matchLabels": labels}, "template": pod, **spec}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": whole}

    return made


@pytest.fixture
def owners() -> Callable[[Tree], dict[tuple[str, str, str], list[str]]]:
    """The fields of each manager, operation and subresource."""

    def shown(tree: Tree) -> dict[tuple[str, str, str], list[str]]:
        entries = tree["metadata"].get("managedFields", ())
        return {
            (e["manager"], e["operation"], e.get("subresource", "")): [render(path) for path in paths(e["fieldsV1"])]
            for e in entries
        }

    return shown
