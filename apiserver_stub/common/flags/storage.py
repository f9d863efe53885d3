"""Flags of the storage of objects."""

from pathlib import Path

from controller_manager.common.options import Duration, Options, Quantity, flag

ETCD = ("etcd", "etcd3")
"""The backends that are an etcd."""
DATABASE = "apiserver.db"  # in the data folder


class StorageOptions(Options):
    """The storage of objects."""

    title = "Storage"

    storage_backend: str = flag(
        "sqlite",
        "Where objects are kept: in a database of this server, in memory, or in an etcd (--etcd-servers), which etcd3 "
        "means too.",
        choices=("sqlite", "memory", *ETCD),
    )
    data_dir: str = flag("apiserver-data", "Folder of the database and of what the server makes for itself.")
    accept_data_loss: bool = flag(
        False,
        "Start although acknowledged writes are lost, with what is left of the store; revisions jump far ahead, so "
        "that none is given out again. Without it such a start is refused, and says what is lost.",
    )
    watch_cache_window: Duration = flag(
        "5m", "How much history is kept for watches and consistent lists to resume from.", minimum=1
    )
    watch_cache_size: Quantity = flag(
        "256Mi",
        "How many bytes of objects this history holds of all kinds together, the oldest going first; of one kind it "
        "holds 128Mi at most.",
        minimum=1 << 20,
    )
    representation_cache_size: Quantity = flag(
        "256Mi",
        "How many bytes of objects in protobuf, of rows of tables and of events of watches are kept once they are "
        "encoded, for all clients; 0 encodes them anew for each.",
        minimum=0,
    )
    event_ttl: Duration = flag("1h", "How long an event is kept after its last write; 0 keeps it for good.", minimum=0)

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data_dir)
