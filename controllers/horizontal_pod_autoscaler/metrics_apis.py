"""Asks the three metrics APIs: each for much at once, and for a while at most, so that none holds up the others."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from controller_manager.api.errors import ApiError, NotFound
from controller_manager.api.metrics import API_GROUP, CUSTOM_METRICS, EXTERNAL_METRICS, RESOURCE_METRICS
from controller_manager.client import Client
from controller_manager.client.client import Call

from .pods import CannotCompute
from .readings import Query

# Questions to one API that are open at the same time, and seconds for an answer, and to get a turn.
AT_ONCE = 100
DEADLINE = 10.0
PATIENCE = 60.0
# Of what an API says of its troubles, so many characters are told.
_MOST_WORDS = 1000

# The versions of an API that are understood, the best first.
_VERSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RESOURCE_METRICS: ("v1beta1",),
        CUSTOM_METRICS: ("v1beta2", "v1beta1"),
        EXTERNAL_METRICS: ("v1beta1",),
    }
)


class MetricsApis:
    """Answers as they come, for `readings` to read."""

    def __init__(self, client: Client) -> None:
        self._apis = {group: _Api(client, group, versions) for group, versions in _VERSIONS.items()}

    async def ask(self, query: Query) -> bytes:
        """The answer to a question. Raises CannotCompute when there is none."""
        return await self._apis[query.group].ask(query)


class _Api:
    """One of the APIs, and the version it is asked in, once known."""

    def __init__(self, client: Client, group: str, versions: tuple[str, ...]) -> None:
        self._client = client
        self._group = group
        self._versions = versions
        self._version = versions[0] if len(versions) == 1 else ""
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, query: Query) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.acquire()
        except TimeoutError:
            raise CannotCompute(f"{self._group} is too busy, or hangs") from None
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._ask(query)
        except TimeoutError:
            raise CannotCompute(f"{self._group} did not answer within {DEADLINE:g} s") from None
        except (ApiError, OSError) as error:
            raise CannotCompute(f"metrics can't be fetched from {self._group}: {str(error)[:_MOST_WORDS]}") from None
        finally:
            self._turns.release()

    async def _ask(self, query: Query) -> bytes:
        version = self._version or await self._preferred()
        try:
            body = await self._get(version, query)
        except NotFound as missing:
            return await self._ask_others(version, query, missing)
        if len(self._versions) > 1:
            self._version = version
        return body

    async def _ask_others(self, version: str, query: Query, missing: NotFound) -> bytes:
        """The answer of another version: maybe it is not the metric that is missing."""
        for other in self._versions:
            if other != version:
                try:
                    body = await self._get(other, query)
                except NotFound:
                    continue
                self._version = other
                return body
        raise missing

    async def _preferred(self) -> str:
        """The best version that the server says it has; without an answer, the best there is."""
        try:
            group = API_GROUP.decode(await self._client.raw(Call("GET", f"/apis/{self._group}")))
        except (ApiError, msgspec.DecodeError, RecursionError):
            return self._versions[0]
        served = {each.version for each in group.versions}
        return next((version for version in self._versions if version in served), self._versions[0])

    async def _get(self, version: str, query: Query) -> bytes:
        return await self._client.raw(Call("GET", f"/apis/{self._group}/{version}/{query.path}", query.selectors))
