"""The clients of one manager and their transports. Clients share metrics; each component has its own rate limit."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, Self

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from pydantic import model_validator

from controller_manager.app.catalog import AnySpec
from controller_manager.app.reachability import ObservedTransport, Reachability
from controller_manager.app.service_accounts import Account
from controller_manager.common.base.metrics import Family, Shown
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Check, Parsed
from controller_manager.common.options.types import Int32, StringMap
from controller_manager.common.transport.connections import Connections
from controller_manager.common.transport.credentials import Obtain
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.common.transport.kubeconfig import from_flags
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.requests import (
    JSON,
    PROTOBUF,
    AdaptiveThrottle,
    ClientMetrics,
    RequestEncoder,
    Throttle,
)
from controller_manager.framework.leader.elector import FencedTransport


class Network(Protocol):
    """Creates the transports of a process. The caller must close them."""

    def connect(self, clusterconfig: str = "", master: str = "", obtain: Obtain | None = None) -> Transport:
        """Return a transport for the values of `--clusterconfig` and `--master`, or of similar flags.

        With `obtain` it uses the credentials that this returns instead of those of the configuration. Raises
        ConfigError.
        """


class HttpNetwork:
    """The real network. Transports with their own credentials share the connections of a configuration."""

    def __init__(self, metrics: TransportMetrics | None = None) -> None:
        self._metrics = metrics or TransportMetrics()
        self._made: dict[tuple[str, str], HttpTransport] = {}

    def connect(self, clusterconfig: str = "", master: str = "", obtain: Obtain | None = None) -> Transport:
        """See `Network`."""
        first = self._made.get((clusterconfig, master))
        if first is not None and obtain is not None:
            return first.with_credentials(obtain)
        config = from_flags(clusterconfig, master)
        made = HttpTransport(config, obtain=obtain, shared=Connections(config, metrics=self._metrics))
        self._made.setdefault((clusterconfig, master), made)
        return made


_QPS, _BURST = 20.0, 30
_UNLIMITED = 1000.0  # initial requests per second of adaptive throttling without a limit
_RATE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_READER_FACTOR = 4  # informers read for all controllers, and all start at once


class ClientOptions(Options):
    """Flags of the connection to the API server."""

    title: ClassVar[str] = "Client"

    clusterconfig: str = flag(
        "",
        "client configuration file; without it and --master, the files that $KUBECONFIG lists are used, and without "
        "these the service account of the pod",
        aliases=("kubeconfig",),
        metavar="file",
    )
    master: str = flag("", "address of the API server, in place of the one in the client configuration")
    cluster_api_qps: float = flag(
        _QPS,
        "requests a second of each controller to the API server, and four times as many to fill the local copies that "
        "all of them share; a negative number sets no limit, 0 is the default",
        aliases=("kube-api-qps",),
    )
    cluster_api_burst: Int32 = flag(
        _BURST,
        "requests of each controller to the API server that may go out at once; 0 is the default",
        aliases=("kube-api-burst",),
        minimum=0,
    )
    controller_api_qps: StringMap = flag(
        {},
        "requests a second of single controllers in place of those of all, as in deployment=100,job=50; they may send "
        "as many more of them at once as the rate is higher. Of a controller with shards it is for all that a replica "
        "runs",
    )
    adaptive_api_throttling: bool = flag(
        False,
        "reduce the request rate of a controller while the API server is overloaded (429), down to a twentieth, then "
        "raise it again step by step; controllers without a limit start at 1000 requests per second",
    )
    cluster_api_content_type: str = flag(
        PROTOBUF,
        "media type of the objects sent to the API server; those of custom kinds, and those protobuf has no place for "
        "all of, are sent as JSON, and answers are asked for as JSON",
        aliases=("kube-api-content-type",),
        choices=(JSON, PROTOBUF),
    )
    use_service_account_credentials: bool = flag(
        False,
        "each controller acts as a service account of its own, which is made when it is missing; otherwise all act as "
        "the process",
    )

    @model_validator(mode="after")
    def _are_rates(self) -> Self:
        for name, text in self.controller_api_qps.items():
            if not _RATE.fullmatch(text) or float(text) <= 0:
                raise ValueError(f"--controller-api-qps: the rate of {name} must be a number above 0, not {text!r}")
        return self

    def throttle(self, factor: int = 1, names: Sequence[str] = ()) -> Throttle:
        """Return the throttle of a client: `factor` times the default, or the rate set for one of these names."""
        usual = self.cluster_api_qps or _QPS
        qps, burst = usual * factor, (self.cluster_api_burst or _BURST) * factor
        own = next((float(self.controller_api_qps[one]) for one in names if one in self.controller_api_qps), None)
        if own is not None:
            qps, burst = own, max(1, round(burst * own / qps)) if qps > 0 else max(1, round(own))
        if not self.adaptive_api_throttling:
            return Throttle(qps, burst)
        return AdaptiveThrottle(qps, burst) if qps > 0 else AdaptiveThrottle(_UNLIMITED, int(_UNLIMITED))


class Clients:
    """The clients of a process. `unlimited` has no rate limit, for lease renewals; `reader` is for informers.

    Both use the credentials of the process.
    """

    def __init__(self, options: ClientOptions, network: Network, runtime: Runtime) -> None:
        self._options = options
        self._network = network
        self._name = runtime.name
        self._log = runtime.log("service-accounts")
        self.reachability = Reachability()
        self._transport = self._connect()
        self.metrics = ClientMetrics(runtime.registry)
        self._bodies = RequestEncoder(options.cluster_api_content_type)
        self._worker = runtime.worker
        self.unlimited = Client(
            self._transport,
            metrics=self.metrics,
            user_agent=f"{runtime.name}/process",
            bodies=self._bodies,
            worker=self._worker,
        )
        self.reader = self.unlimited.derive(
            user_agent=f"{runtime.name}/informers", throttle=options.throttle(_READER_FACTOR)
        )
        self._tokens = self.unlimited.derive(user_agent=f"{runtime.name}/tokens", throttle=options.throttle())
        # By the service account that uses it.
        self._accounts: dict[str, Transport] = {}
        # By the component that it limits.
        self._throttles: dict[str, Throttle] = {}
        if options.adaptive_api_throttling:
            runtime.registry.register(_Rates(self._throttles))

    def writer(
        self,
        name: str,
        may_write: Callable[[], bool],
        qps_factor: int = 1,
        account: str = "",
        unanswered: Callable[[], None] | None = None,
        aliases: Sequence[str] = (),
    ) -> Client:
        """Return a client of the component `name`, with its `aliases`, that writes only while `may_write()`.

        All clients of a component and account share one rate limit, independent of other components. With an `account`
        and `--use-service-account-credentials` it acts as that service account. `unanswered` is called for each write
        that ends without a response.
        """
        own = account if self._options.use_service_account_credentials else ""
        limited = f"{name} of {account}" if account else name
        throttle = self._throttles.get(limited)
        if throttle is None:
            throttle = self._throttles[limited] = self._options.throttle(qps_factor, (name, *aliases))
        transport = self._with_credentials_of(own) if own else self._transport
        fenced = FencedTransport(transport, may_write, *([unanswered] if unanswered is not None else []))
        return Client(
            fenced,
            metrics=self.metrics,
            user_agent=f"{self._name}/{name}",
            throttle=throttle,
            bodies=self._bodies,
            worker=self._worker,
        )

    async def close(self) -> None:
        """Close every connection."""
        for transport in (*self._accounts.values(), self._transport):
            await transport.close()

    def _with_credentials_of(self, account: str) -> Transport:
        if account not in self._accounts:
            obtain = Account(self._tokens, account, self._log)
            self._accounts[account] = self._connect(obtain)
        return self._accounts[account]

    def _connect(self, obtain: Obtain | None = None) -> Transport:
        options = self._options
        return ObservedTransport(
            self._network.connect(options.clusterconfig, options.master, obtain), self.reachability
        )


_RATE_LIMIT = Family(
    "rest_client_adaptive_rate_limit",
    "Requests a second that a controller may send now, where that follows the answers of the API server.",
    "gauge",
    ("controller",),
)


class _Rates(Collector):
    """Collects the rates of adaptive throttles."""

    def __init__(self, throttles: Mapping[str, Throttle]) -> None:
        self._throttles = throttles

    def collect(self) -> Iterable[Metric]:
        """Yield the current rates; called by the registry."""
        yield Shown(_RATE_LIMIT, [((name,), throttle.rate) for name, throttle in self._throttles.items()])


def rates_known(specs: Iterable[AnySpec]) -> Check:
    """Return the check that `--controller-api-qps` names known controllers."""
    names = {name for spec in specs for name in (spec.name, *spec.aliases)}

    def check(parsed: Parsed) -> Iterator[str]:
        for name in parsed[ClientOptions].controller_api_qps:
            if name not in names:
                yield f"--controller-api-qps: there is no controller {name!r}"

    return check
