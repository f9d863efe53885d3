"""The printers of the built-in kinds, one file per subject: columns, and the cells of an object."""

from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.kinds.printers import cluster, core, network, storage, workloads
from apiserver_stub.kinds.resource_info import Printer

PRINTERS: Mapping[tuple[str, str], Printer] = MappingProxyType({
    **cluster.PRINTERS, **core.PRINTERS, **network.PRINTERS, **storage.PRINTERS, **workloads.PRINTERS,
})  # fmt: skip
"""By group and kind. Kinds without an entry show name and creation time."""
