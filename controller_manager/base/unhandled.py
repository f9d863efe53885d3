"""What an event loop finds wrong that nobody handled, and what of it is worth a warning."""

import asyncio
from typing import Any

from controller_manager.base.log import get_logger


def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop found wrong, as the loop tells it; but quietly that a connection or its TLS ended badly: who
    used it tells of it, and many do when a process on either side stops.
    """
    if isinstance(context.get("exception"), OSError) and not {"task", "future"} & context.keys():
        get_logger("connections").debug(context.get("message", ""), error=str(context["exception"]))
    else:
        loop.default_exception_handler(context)
