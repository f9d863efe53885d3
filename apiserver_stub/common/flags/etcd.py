"""Flags of a storage in etcd."""

from typing import Self

from pydantic import field_validator, model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, StringList

_JSON = "application/json"


class EtcdServersOptions(Options):
    """The members of an etcd, and the keys in it."""

    title = "etcd"

    etcd_servers: StringList = flag((), "URLs of the etcd members, such as https://10.0.0.1:2379.")
    etcd_prefix: str = flag(
        "/registry", "Prefix of all keys in etcd; all API servers of a cluster must use the same one."
    )
    etcd_cafile: str = flag("", "File with the certificate authorities of etcd.")
    etcd_certfile: str = flag("", "File with the client certificate for etcd.")
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
        "How often one of the API servers compacts etcd, up to the end of its --watch-cache-window; 0 disables "
        "compaction by API servers.",
        minimum=0,
    )
    etcd_count_metric_poll_period: Duration = flag(
        "1m", "0 disables the metrics of object counts; otherwise objects are counted at each scrape.", minimum=0
    )
    etcd_db_metric_poll_interval: Duration = flag(
        "30s", "How often the database size of etcd members is polled; 0 disables polling.", minimum=0
    )
    etcd_healthcheck_timeout: Duration = flag("2s", "Timeout of the etcd health check.", minimum=0.1)
    etcd_readycheck_timeout: Duration = flag("2s", "Timeout of the etcd readiness check.", minimum=0.1)
    etcd_servers_overrides: StringList = flag(
        (), "Separate etcd servers for resources; rejected, because all objects share one sequence of revisions."
    )
    lease_reuse_duration_seconds: int = flag(
        60,
        "How many seconds an etcd lease is reused for events, at most a twentieth of --event-ttl.",
        minimum=0,
    )
    storage_media_type: str = flag(_JSON, "Media type of stored objects; objects are always stored as JSON.")

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
