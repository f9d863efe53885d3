"""Flags of the storage of objects."""

from pathlib import Path

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, Quantity

ETCD = ("etcd", "etcd3")
"""The backends that are an etcd."""
DATABASE = "apiserver.db"  # in the data folder


class StorageOptions(Options):
    """The storage of objects."""

    title = "Storage"

    storage_backend: str = flag(
        "sqlite",
        "Where objects are stored: in a database of this server, in memory, or in etcd (--etcd-servers); etcd3 is"
        " the same as etcd.",
        choices=("sqlite", "memory", *ETCD),
    )
    data_dir: str = flag("apiserver-data", "Folder of the database and of generated files.")
    accept_data_loss: bool = flag(
        False,
        "Start although acknowledged writes were lost, with the remaining data; revisions skip far ahead so that "
        "none is used twice. Without this flag the server does not start, and reports the loss.",
    )
    watch_cache_window: Duration = flag(
        "5m", "How much history is available for resuming watches and consistent lists.", minimum=1
    )
    watch_cache_size: Quantity = flag(
        "256Mi",
        "Maximum size of this history for all resources together, the oldest is dropped first; at most 128Mi per "
        "resource.",
        minimum=1 << 20,
    )
    representation_cache_size: Quantity = flag(
        "256Mi",
        "Maximum size of cached encodings (protobuf objects, table rows, watch events), shared by all clients; 0 "
        "disables the cache.",
        minimum=0,
    )
    event_ttl: Duration = flag(
        "1h", "How long an event is stored after its last write; 0 stores it forever.", minimum=0
    )

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data_dir)
