"""The manager's pages, served over HTTPS."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from controller_manager.api.wire import Request, Response
from controller_manager.component.secure_serving import SecureServingOptions
from controller_manager.options import flag
from controller_manager.serving.trust import Trust

if TYPE_CHECKING:  # its HTTP library takes half the start of a process, and --help gets along without
    from controller_manager.serving.http_server import HTTPServer

# Pages are for readers, who send no bodies; anybody may send the head of a request, before it is known who that is.
_HEAD, _BODY, _CONNECTIONS = 128 * 1024, 64 * 1024, 1000


class ServingOptions(SecureServingOptions):
    """Flags of serving health, metrics and the like."""

    secure_port: int | None = flag(
        10257,
        "port to serve HTTPS on; 0 serves nothing, and without a default it is any that is free",
        minimum=0,
        maximum=65535,
    )


def pages_server(
    handle: Callable[[Request], Awaitable[Response]], serving: SecureServingOptions, trust: Trust, name: str
) -> "HTTPServer | None":
    """Return the server of the pages of the program `name`, or None with --secure-port=0. Raises CannotStart."""
    if serving.secure_port == 0:
        return None
    from controller_manager.component.secure_server import secure_server, self_signed
    from controller_manager.serving.http_server import Limits

    limits = Limits(_HEAD, _BODY, _CONNECTIONS)
    return secure_server(handle, serving, trust, partial(self_signed, serving, name), limits)
