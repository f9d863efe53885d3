"""Pages for people who want to know what this process is doing, below /debug/, and its flags as pages."""

from collections.abc import Mapping
from typing import ClassVar

from controller_manager.api.wire import Request, Response
from controller_manager.app.pages import Handler
from controller_manager.options import Options, Parsed
from controller_manager.serving.pages import configz_page


class DebuggingOptions(Options):
    """What is shown of the inside."""

    title: ClassVar[str] = "Debugging"


def debugging_routes(name: str, parsed: Parsed) -> Mapping[str, Handler]:
    """A handler by path."""

    async def configz(_: Request) -> Response:
        return configz_page(name, parsed.settings())

    return {"/configz": configz}
