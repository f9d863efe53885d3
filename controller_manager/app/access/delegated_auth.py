"""Who may see what this process serves: its callers are known and allowed by the API server."""

from collections.abc import Mapping

from controller_manager.api.wire import Request
from controller_manager.app.access.authentication import RULE_NAMES, AuthenticationOptions, believe_files, follow_files
from controller_manager.app.access.authorization import AuthorizationOptions
from controller_manager.app.access.delegated import Asker, Decisions, Owners
from controller_manager.app.access.lookup import Lookup, Wanted
from controller_manager.app.access.metrics import AccessMetrics, TokenCacheMetrics
from controller_manager.app.network import Network
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import all_of
from controller_manager.client import Client, ClientMetrics, Transport
from controller_manager.options import Parsed
from controller_manager.serving.access import Access, Authorize, Decision, Identity, OpenPaths
from controller_manager.serving.request_authenticator import FindOwner, RequestAuthenticator
from controller_manager.serving.trust import Trust


class DelegatedAuth:
    """Checks each request; `trust` is what the site believes of client certificates.

    `client_metrics` count what the API server is asked. Raises ConfigError for files that cannot be used.
    """

    def __init__(
        self,
        parsed: Parsed,
        network: Network,
        trust: Trust,
        runtime: Runtime,
        client_metrics: ClientMetrics | None = None,
    ) -> None:
        who, may = parsed[AuthenticationOptions], parsed[AuthorizationOptions]
        self._log = runtime.log("access")
        self._name = f"{runtime.name}/access"
        self._network = network
        self._client_metrics = client_metrics
        self._transports: list[Transport] = []
        self._who, self._trust = who, trust
        believe_files(who, trust)
        asker = self._client(who.authentication_clusterconfig)
        self._callers = RequestAuthenticator(trust, who.rules(), self._find_owner(asker, runtime) if asker else None)
        wanted = _wanted(who, parsed.given)
        self._lookup = Lookup(asker, wanted, trust, self._callers, self._log) if asker and wanted else None
        open_paths = OpenPaths(may.authorization_always_allow_paths)
        metrics = AccessMetrics(runtime.registry)
        self._access = Access(open_paths, self._callers.identify, self._authorize(may), metrics)

    async def prepare(self) -> None:
        """Look up what the flags leave open. Raises ConfigError where that fails and is not tolerated."""
        if self._lookup is not None:
            await self._lookup.prepare()

    async def run(self) -> None:
        """Follow what was looked up, and the files that the flags name, until cancelled."""
        following = [follow_files(self._who, self._trust, self._log)]
        if self._lookup is not None:
            following.append(self._lookup.follow())
        await all_of(*following)

    async def check(self, request: Request) -> None:
        """Return if the request may be answered; raises an ApiError."""
        await self._access.check(request)

    async def close(self) -> None:
        """Close every connection."""
        for transport in self._transports:
            await transport.close()

    def _client(self, clusterconfig: str) -> Client | None:
        """A client that nothing holds up; None where no configuration is given."""
        if not clusterconfig:
            return None
        transport = self._network.connect(clusterconfig)
        self._transports.append(transport)
        return Client(transport, metrics=self._client_metrics, user_agent=self._name)

    def _find_owner(self, client: Client, runtime: Runtime) -> FindOwner:
        lifetime = self._who.authentication_token_webhook_cache_ttl
        return Owners(Asker(client, self._log), lifetime, TokenCacheMetrics(runtime.registry)).find

    def _authorize(self, may: AuthorizationOptions) -> Authorize:
        client = self._client(may.authorization_clusterconfig)
        if client is None:
            return _nothing
        allowed, refused = (
            may.authorization_webhook_cache_authorized_ttl,
            may.authorization_webhook_cache_unauthorized_ttl,
        )
        return Decisions(Asker(client, self._log), allowed, refused).decide


def _wanted(who: AuthenticationOptions, given: Mapping[str, str]) -> Wanted:
    """What is to be looked up: authorities that no file is given of; rules for proxies come with their authorities,
    but for those that were given.
    """
    rules = who.rules()
    return Wanted(
        clients=not who.client_ca_file and not who.authentication_skip_lookup,
        proxies=not who.requestheader_client_ca_file and not who.authentication_skip_lookup,
        stated={field: getattr(rules, field) for field, name in RULE_NAMES.items() if name in given},
        tolerant=who.authentication_tolerate_lookup_failure,
    )


async def _nothing(_identity: Identity, _verb: str, _path: str) -> Decision:
    return Decision.NO_OPINION
