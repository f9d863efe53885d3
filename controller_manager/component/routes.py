"""Routes of the pages that a process serves about itself: each path has a handler."""

from collections.abc import Awaitable, Callable, Mapping

from controller_manager.api.wire import Request, Response

Handler = Callable[[Request], Awaitable[Response]]


def fixed(response: Response) -> Handler:
    """Return a handler that always answers the same."""

    async def answer(_: Request) -> Response:
        return response

    return answer


def find_handler(routes: Mapping[str, Handler], path: str) -> Handler | None:
    """Return the handler of a path: its own, or that of the longest folder above it. A route that ends in a slash is a
    folder, but for `/`.
    """
    if path in routes:
        return routes[path]
    folders = [one for one in routes if one != "/" and one.endswith("/") and path.startswith(one)]
    return routes[max(folders, key=len)] if folders else None
