"""Resolves the service of a webhook or an APIService to an address, from the watch cache."""

from collections.abc import Iterator
from typing import NamedTuple

from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.core import Service, ServicePort
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.discovery import GROUP, SERVICE_NAME, EndpointSlice
from controller_manager.common.api.errors import ServiceUnavailable, not_found
from controller_manager.common.base.random import random_source

_SERVICES, _SLICES = "services", f"endpointslices.{GROUP}"
_WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
_ITSELF = ("default", "kubernetes", 443)
_SERVICE = Decoder(Service)
_SLICE = Decoder(EndpointSlice)


class ServiceAddress(NamedTuple):
    """Host and port to connect to, and the expected server name of its certificate."""

    host: str
    port: int
    server_name: str


class ServiceResolver:
    """Resolves a service to its cluster IP or external name or, `by_endpoints`, to one of its ready endpoints.

    The service of this server is resolved by its endpoints always: its cluster IP need not lead anywhere from here.
    """

    def __init__(self, store: WatchCache, *, by_endpoints: bool = False) -> None:
        self._store = store
        self._by_endpoints = by_endpoints

    def resolve(self, namespace: str, name: str, port: int) -> ServiceAddress:
        """Return the address of a port of a service.

        Raises `NotFound` for a service that does not exist, and `ServiceUnavailable` for one that leads nowhere.
        """
        row = self._store.get(_SERVICES, f"{namespace}/{name}")
        if row is None:
            raise not_found("", "service", name)
        service = _SERVICE.decode(row.data)
        if self._by_endpoints or (namespace, name, port) == _ITSELF:
            host, port = self._endpoint(service, _port_of(service, port))
        else:
            host = _cluster_host(service, port)
        return ServiceAddress(host, port, f"{name}.{namespace}.svc")

    def _endpoint(self, service: Service, port: ServicePort) -> tuple[str, int]:
        """Return one of the ready endpoints at random, of the first family of the service if it has any there."""
        if service.spec.type not in _WITH_ADDRESS:
            raise _unsupported(service)
        for each in self._slices(service):
            number = next((p.port for p in each.ports or () if (p.name or "") == port.name), None)
            ready = [one for one in each.endpoints or () if one.conditions.ready is not False and one.addresses]
            if number is not None and ready:
                return ready[int(random_source().uniform(0, len(ready))) % len(ready)].addresses[0], number
        raise ServiceUnavailable(f'no endpoints available for service "{service.metadata.name}"')

    def _slices(self, service: Service) -> list[EndpointSlice]:
        preferred, source = service.spec.ip_families[:1], random_source()
        found = list(self._slices_of(service.metadata.namespace, service.metadata.name))
        return sorted(found, key=lambda each: (each.address_type not in preferred, source.uniform(0, 1)))

    def _slices_of(self, namespace: str, name: str) -> Iterator[EndpointSlice]:
        for row in self._store.snapshot(_SLICES).items(prefix=f"{namespace}/"):
            if row.labels.get(SERVICE_NAME) == name:
                yield _SLICE.decode(row.data)


def _cluster_host(service: Service, port: int) -> str:
    spec = service.spec
    if spec.type == "ExternalName":
        return spec.external_name
    if spec.type not in _WITH_ADDRESS:
        raise _unsupported(service)
    if spec.type == "ClusterIP" and spec.cluster_ip == "None":
        raise ServiceUnavailable('cannot route to service with ClusterIP "None"')
    _port_of(service, port)
    return spec.cluster_ip


def _port_of(service: Service, port: int) -> ServicePort:
    for each in service.spec.ports:
        if each.port == port:
            return each
    raise ServiceUnavailable(f'no service port {port} found for service "{service.metadata.name}"')


def _unsupported(service: Service) -> ServiceUnavailable:
    return ServiceUnavailable(f'unsupported service type "{service.spec.type}"')
