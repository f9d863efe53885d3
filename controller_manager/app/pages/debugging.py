"""The pages for people who want to know what this process is and how it was started."""

from collections.abc import Iterable, Mapping

from controller_manager.api.wire import Request, Response
from controller_manager.app.features import FLAGZ, STATUSZ, FeatureOptions
from controller_manager.app.pages.routes import Handler
from controller_manager.app.pages.zpages import About, flagz_handler, statusz_handler
from controller_manager.options import Parsed, reported_version
from controller_manager.serving.pages import configz_page


def debugging_routes(name: str, parsed: Parsed, others: Iterable[str] = ()) -> Mapping[str, Handler]:
    """A handler by path; `others` are the paths of other handlers, for /statusz to name."""
    settings, features = parsed.settings(), parsed[FeatureOptions]
    about = About(name, reported_version(parsed), ".".join(map(str, features.version)))

    async def configz(_: Request) -> Response:
        return configz_page(name, settings)

    routes: dict[str, Handler] = {"/configz": configz}
    if features.enabled(FLAGZ):
        routes["/flagz"] = flagz_handler(about, parsed.texts())
    if features.enabled(STATUSZ):
        routes["/statusz"] = statusz_handler(about, sorted({*routes, *others, "/statusz"}))
    return routes
