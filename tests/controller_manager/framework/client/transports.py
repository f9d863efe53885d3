"""Transports to a server on the loopback interface."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller_manager.common.api.wire import Request
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.http_transport import HttpTransport

GET = Request("GET", "/api/v1/pods")


@asynccontextmanager
async def transport(config: ClientConfig, **options: Any) -> AsyncIterator[HttpTransport]:
    found = HttpTransport(config, **options)
    try:
        yield found
    finally:
        await found.close()
