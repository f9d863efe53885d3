"""Who may see what this process serves: its callers are known and allowed by the API server."""

from controller_manager.api.wire import Request
from controller_manager.app.authentication import AuthenticationOptions, believe_files
from controller_manager.app.authorization import AuthorizationOptions
from controller_manager.app.delegated import Delegated, Lifetimes
from controller_manager.app.network import Network
from controller_manager.base.runtime import Runtime
from controller_manager.client import Client, Transport
from controller_manager.options import Parsed
from controller_manager.serving.access import Access, Authenticate, Authorize, Identity
from controller_manager.serving.trust import Trust


class Guard:
    """Checks each request; `trust` is what the site believes of client certificates."""

    def __init__(self, parsed: Parsed, network: Network, trust: Trust, runtime: Runtime) -> None:
        who, may = parsed[AuthenticationOptions], parsed[AuthorizationOptions]
        self._transports: list[Transport] = []
        believe_files(who, trust)
        lifetimes = Lifetimes(
            tokens=who.authentication_token_webhook_cache_ttl,
            allowed=may.authorization_webhook_cache_authorized_ttl,
            refused=may.authorization_webhook_cache_unauthorized_ttl,
        )
        name = f"{runtime.name}/access"
        authenticate: Authenticate = _nobody
        authorize: Authorize = _never
        if who.authentication_clusterconfig:
            authenticate = Delegated(
                self._client(network, who.authentication_clusterconfig, name), lifetimes
            ).authenticate
        if may.authorization_clusterconfig:
            authorize = Delegated(self._client(network, may.authorization_clusterconfig, name), lifetimes).authorize
        self._access = Access(may.authorization_always_allow_paths, authenticate, authorize)

    def _client(self, network: Network, clusterconfig: str, name: str) -> Client:
        transport = network.connect(clusterconfig)
        self._transports.append(transport)
        return Client(transport, user_agent=name)

    async def prepare(self) -> None:
        """Look up what the flags leave open. Raises ConfigError where that fails and is not tolerated."""

    async def run(self) -> None:
        """Follow what was looked up, until cancelled."""

    async def check(self, request: Request) -> None:
        """Return if the request may be answered; raises Unauthorized or Forbidden."""
        await self._access.check(request)

    async def close(self) -> None:
        """Close every connection."""
        for transport in self._transports:
            await transport.close()


async def _nobody(_token: str) -> Identity | None:
    return None


async def _never(_identity: Identity, _verb: str, _path: str) -> bool:
    return False
