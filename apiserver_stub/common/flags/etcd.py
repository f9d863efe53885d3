"""Flags of a storage in etcd."""

from typing import Self

from pydantic import field_validator, model_validator

from controller_manager.common.options import Duration, Options, StringList, flag

_JSON = "application/json"


class EtcdServersOptions(Options):
    """The members of an etcd, and the keys in it."""

    title = "etcd"

    etcd_servers: StringList = flag((), "URLs of the members of the etcd, such as https://10.0.0.1:2379.")
    etcd_prefix: str = flag("/registry", "The prefix of all keys in etcd; API servers of one cluster have the same.")
    etcd_cafile: str = flag("", "File with the authorities of the certificates of etcd.")
    etcd_certfile: str = flag("", "File with the certificate by which this server is known to etcd.")
    etcd_keyfile: str = flag("", "File with the key of --etcd-certfile.")

    @model_validator(mode="after")
    def _are_pairs(self) -> Self:
        if bool(self.etcd_certfile) != bool(self.etcd_keyfile):
            raise ValueError("--etcd-certfile and --etcd-keyfile need one another")
        return self


class EtcdOptions(EtcdServersOptions):
    """Objects in etcd, with --storage-backend=etcd."""

    etcd_compaction_interval: Duration = flag(
        "5m",
        "How often etcd is compacted by one of the servers that use it, up to where their --watch-cache-window ends; 0 "
        "leaves that to others.",
        minimum=0,
    )
    etcd_count_metric_poll_period: Duration = flag(
        "1m", "0 shows no metrics of how many objects there are; else they are counted when asked for.", minimum=0
    )
    etcd_db_metric_poll_interval: Duration = flag(
        "30s", "How often the members are asked for the size of their databases; 0 asks never.", minimum=0
    )
    etcd_healthcheck_timeout: Duration = flag(
        "2s", "How long etcd may take to answer until it counts as not healthy.", minimum=0.1
    )
    etcd_readycheck_timeout: Duration = flag(
        "2s", "How long etcd may take to answer until it counts as not ready.", minimum=0.1
    )
    etcd_servers_overrides: StringList = flag(
        (), "Resources in an etcd of their own; refused, since all objects have one order of revisions."
    )
    lease_reuse_duration_seconds: int = flag(
        60,
        "For how many seconds events are given the same lease of etcd, a twentieth of --event-ttl at most.",
        minimum=0,
    )
    storage_media_type: str = flag(_JSON, "How objects are kept; they are kept as JSON on every storage.")

    @field_validator("etcd_servers_overrides")
    @classmethod
    def _has_no_others(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            raise ValueError("all objects have one order of revisions here, so that one etcd keeps them all")
        return value

    @field_validator("storage_media_type")
    @classmethod
    def _is_json(cls, value: str) -> str:
        if value != _JSON:
            raise ValueError(f"objects are kept as {_JSON} here, got {value!r}")
        return value
