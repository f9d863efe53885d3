"""Calls to the members of an etcd cluster. One member is used until it fails, then the next. Reads are retried."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from apiserver_stub.storage.etcd import failures
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from controller_manager.common.api.protobuf.services import service
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import all_of
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.grpc import GrpcChannel, GrpcError, GrpcStream, GrpcTls

SERVICE = service("etcd")
_LOOKAHEAD = 4 << 20  # bytes of a stream buffered for its reader
_KEEPALIVE = 30.0  # seconds without data until a ping; etcd rejects pings more often than every 5 s
_ATTEMPTS = 6
_PAUSE, _LONGEST_PAUSE = 0.1, 1.6  # seconds between two attempts, doubled each time
_GRACE = 10.0  # seconds for pending calls after certificates change
_WITH_LEADER = (("hasleader", "true"),)  # a member without a leader rejects the call


@dataclass(frozen=True, slots=True)
class EtcdServers:
    """The members of an etcd cluster (`http://host:port`, `https://…`, `unix:///path`) and the TLS files. A `dialer`
    connects to members in another network.
    """

    urls: Sequence[str]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    dialer: Dialer | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("--etcd-servers: a storage in etcd needs the URLs of its members")
        for url in self.urls:
            target_of(url)

    def tls(self) -> GrpcTls:
        """Return the TLS settings, read from the files. Raises OSError."""
        ca, certificate, key = (
            Path(file).read_bytes() if file else b"" for file in (self.cafile, self.certfile, self.keyfile)
        )
        return GrpcTls(ca, certificate, key)

    def is_secure(self, url: str) -> bool:
        """Return whether a member is reached over TLS."""
        return url.startswith(("https:", "unixs:")) or ("://" not in url and bool(self.cafile or self.certfile))


def target_of(url: str) -> tuple[str, int]:
    """Return the host and port of a member, or the path of its socket and 0. Raises `ValueError`."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    if parts.scheme in ("unix", "unixs"):
        return parts.netloc + parts.path, 0
    if parts.scheme not in ("", "http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"--etcd-servers: {url!r} is no URL of a server such as https://127.0.0.1:2379")
    return parts.hostname, parts.port or 2379


class EtcdClient:
    """Calls the members of an etcd cluster, with failover to the next member."""

    def __init__(self, servers: EtcdServers, metrics: EtcdMetrics) -> None:
        self._servers = servers
        self._metrics = metrics
        self._channels: dict[str, GrpcChannel] = {}
        self._preferred = 0
        self._tls: GrpcTls | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def urls(self) -> Sequence[str]:
        """Return the URLs of the members."""
        return self._servers.urls

    async def read(self, method: str, message: Tree, timeout: float = 5.0) -> Tree:
        """Return the response to an idempotent request, with retries. `timeout` is the seconds per attempt. Raises the
        `GrpcError` of the last attempt.
        """
        return await self._attempts(method, message, timeout, failures.is_passing)

    async def write(self, message: Tree, timeout: float = 10.0) -> Tree:
        """Return the response to a transaction. It is retried only if it was not started. Raises `GrpcError`."""
        return await self._attempts("Txn", message, timeout, failures.was_not_begun)

    async def ask_once(self, method: str, message: Tree, timeout: float, url: str = "") -> Tree:
        """Return the response of a given member, or of the current one, without retries. Raises `GrpcError`."""
        return await self._ask(url or self._url, method, message, timeout)

    async def stream(self) -> tuple[GrpcStream, str]:
        """Open a watch stream and return it with the member's URL. A member without a leader ends it. Raises
        `GrpcError`.
        """
        url = self._url
        stream = (await self._channel(url)).stream(SERVICE, "Watch", _WITH_LEADER)
        try:
            await stream.connected()
        except GrpcError:
            self._pass_over(url)
            raise
        return stream, url

    async def refresh(self) -> None:
        """Reconnect if the TLS files have changed. Pending calls have ten seconds to finish."""
        if self._tls is None:
            return
        try:
            changed = self._servers.tls() != self._tls
        except OSError:  # the file is being replaced
            return
        if changed:
            old, self._channels, self._tls = self._channels, {}, None
            await all_of(*(channel.close(_GRACE) for channel in old.values()))

    async def close(self) -> None:
        """Close all connections permanently; pending calls fail."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    @property
    def _url(self) -> str:
        return self._servers.urls[self._preferred]

    def _pass_over(self, url: str) -> None:
        """Switch to the next member, unless another call has done so already."""
        if url == self._url:
            self._preferred = (self._preferred + 1) % len(self._servers.urls)

    async def _attempts(
        self, method: str, message: Tree, timeout: float, may_retry: Callable[[GrpcError], bool]
    ) -> Tree:
        pause = _PAUSE
        for attempt in range(_ATTEMPTS):
            tried = self._url
            try:
                return await self._ask(tried, method, message, timeout)
            except GrpcError as failure:
                if failures.ends_connection(failure):
                    self._pass_over(tried)
                if attempt == _ATTEMPTS - 1 or not may_retry(failure):
                    raise
                self._metrics.retries.add(failures.label(failure))
            if attempt >= len(self._servers.urls) - 1:  # all members were tried
                await asyncio.sleep(pause * random_source().uniform(1.0, 1.1))
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError

    async def _ask(self, url: str, method: str, message: Tree, timeout: float) -> Tree:
        channel = self._channels.get(url) or await self._channel(url)
        return await channel.unary(SERVICE, method, message, timeout)

    async def _channel(self, url: str) -> GrpcChannel:
        async with self._opening:
            if self._closed:
                raise GrpcError("CANCELLED", "the storage is closed")
            found = self._channels.get(url)
            if found is None:
                found = self._channels[url] = self._open(url)
            return found

    def _open(self, url: str) -> GrpcChannel:
        host, port = target_of(url)
        target = f"unix:{host}" if not port else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tls = None
        try:
            if self._servers.is_secure(url):
                tls = self._tls = self._tls or self._servers.tls()
        except OSError as error:
            raise GrpcError("UNAVAILABLE", f"failed to connect to {url}: {error}", unsent=True) from None
        return GrpcChannel(
            target, tls, largest=-1, lookahead=_LOOKAHEAD, keepalive=_KEEPALIVE, dialer=self._servers.dialer
        )
