"""The pages that every process serves about itself: /metrics, /debug/pprof, /configz, /flagz and /statusz. Access is
checked elsewhere.

/flagz and /statusz are text, or objects of the group config.k8s.io if the parameters `g`, `v` and `as` of `Accept`
request them (KEP-4827 and KEP-4828).
"""

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from isal import isal_zlib
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from controller_manager.common.api.errors import NotAcceptable
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log.formats import without_secrets
from controller_manager.common.base.watchdog import Hold
from controller_manager.common.component.features import FLAGZ, STATUSZ, FeatureOptions
from controller_manager.common.component.options import ProfilingOptions
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.exposition import chosen, pieces, takes_gzip

# Routes of the pages: each path has a handler.

Handler = Callable[[Request], Awaitable[Response]]


def fixed(response: Response) -> Handler:
    """Return a handler that always returns this response."""

    async def answer(_: Request) -> Response:
        return response

    return answer


def find_handler(routes: Mapping[str, Handler], path: str) -> Handler | None:
    """Return the handler of a path, or of the longest folder that contains it. A route that ends in a slash is a
    folder, except `/`.
    """
    if path in routes:
        return routes[path]
    found = [folder for folder in folders(routes) if path.startswith(folder)]
    return routes[max(found, key=len)] if found else None


def folders(routes: Iterable[str]) -> tuple[str, ...]:
    """Return the routes that are folders."""
    return tuple(route for route in routes if route != "/" and route.endswith("/"))


_GROUP = f"config.{GROUP_DOMAIN}"
_VERSIONS = ("v1beta1", "v1alpha1")
_TEXT = {
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-cache, no-store",
    "x-content-type-options": "nosniff",
}
_WARNING = "Warning: this page is for people; its format may change at any time. Ask for {kind} of {group} instead."
_ANY_TEXT = ("*/*", "text/*", "text/plain")
_PROFILES = "/debug/pprof/"
_GZIP = 31  # wbits of zlib: a window of 32 KiB, gzip format


class About(msgspec.Struct, frozen=True):
    """The name of a process, its version and the version it emulates."""

    name: str
    version: str
    emulates: str


def metrics_handler(registry: CollectorRegistry) -> Handler:
    """Return the handler for /metrics; it lets other tasks run between pieces of the output."""

    async def collect() -> Iterable[Metric]:
        return registry.collect()

    return _metrics_page(collect)


def gathered_handler(gather: Callable[[str], Awaitable[Iterable[Metric]]], page: str) -> Handler:
    """Return a handler for a metrics page with the families that `gather` returns for it."""
    return _metrics_page(partial(gather, page))


def _metrics_page(collect: Callable[[], Awaitable[Iterable[Metric]]]) -> Handler:
    async def answer(request: Request) -> Response:
        form = chosen(request.headers.get("accept", ""))
        headers = {"content-type": form.content_type, "vary": "accept, accept-encoding"}
        zipper = None
        if takes_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            zipper = isal_zlib.compressobj(1, wbits=_GZIP)
        parts = []
        for text in pieces(await collect(), form):
            data = text.encode()
            parts.append(zipper.compress(data) if zipper is not None else data)
            await asyncio.sleep(0)
        if zipper is not None:
            parts.append(zipper.flush())
        return Response(200, headers, b"".join(parts))

    return answer


class Profiling:
    """The profiles of a process; tasks whose name contains one of the `controllers` are labelled with it."""

    def __init__(self, options: ProfilingOptions, program: str, controllers: Collection[str] = ()) -> None:
        from controller_manager.common.serving.pprof import Contention, PprofPages  # not needed for --help

        def describe(task: str) -> dict[str, str]:
            working = next((word for word in task.split() if word in controllers), "")
            return {"task": task, "controller": working}

        self._options = options
        self._contention = Contention(describe, on=options.contention_profiling)
        self._pages = PprofPages(program, sys.argv, describe, self._contention)

    @property
    def record(self) -> Callable[[Hold], None] | None:
        """Return the function that records delays of the loop; None unless contention profiling is enabled."""
        return self._contention.record if self._options.profiling and self._options.contention_profiling else None

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by path; empty unless profiling is enabled."""
        if not self._options.profiling:
            return {}
        return {"/debug/pprof": fixed(Response(301, {"location": _PROFILES})), _PROFILES: self._pages.answer}


def debugging_routes(name: str, parsed: Parsed, version: str, others: Iterable[str] = ()) -> Mapping[str, Handler]:
    """Return handlers by path for a process of this `version`; `others` are paths of other handlers to list in
    /statusz. Names and passwords in URLs are masked.
    """
    features = parsed[FeatureOptions]
    about = About(name, version, ".".join(map(str, features.version)))

    async def configz(_: Request) -> Response:
        settings = msgspec.json.encode({name: _masked(parsed.settings())})
        return Response(200, {"content-type": "application/json"}, settings)

    routes: dict[str, Handler] = {"/configz": configz}
    if features.enabled(FLAGZ):
        routes["/flagz"] = flagz_handler(about, parsed.texts)
    if features.enabled(STATUSZ):
        routes["/statusz"] = statusz_handler(about, sorted({*routes, *others, "/statusz"}))
    return routes


def flagz_handler(about: About, values: Callable[[], Mapping[str, str]]) -> Handler:
    """Return the handler for /flagz: every flag with its current value in command-line format."""

    async def answer(request: Request) -> Response:
        flags = _masked(dict(sorted(values().items())))
        medium = _medium(request, "Flagz")
        if medium is None:
            return _text(about.name, "Flagz", [f"{name}={value}" for name, value in flags.items()])
        return medium.write(about.name, {"flags": flags})

    return answer


def statusz_handler(about: About, paths: list[str]) -> Handler:
    """Return the handler for /statusz: versions, uptime and the `paths` of the process."""
    started = utc_now()

    async def answer(request: Request) -> Response:
        seconds = int((utc_now() - started).total_seconds())
        medium = _medium(request, "Statusz")
        if medium is None:
            return _text(
                about.name,
                "Statusz",
                [
                    f"Started: {started:%a %b %e %H:%M:%S %Z %Y}",
                    f"Up: {seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec",
                    f"Python version: {platform.python_version()}",
                    f"Binary version: {about.version}",
                    f"Emulation version: {about.emulates}",
                    f"Paths: {' '.join(paths)}",
                ],
            )
        return medium.write(
            about.name,
            {
                "startTime": format_time(started),
                "uptimeSeconds": seconds,
                "goVersion": f"{platform.python_implementation()} {platform.python_version()}",
                "binaryVersion": about.version,
                "emulationVersion": about.emulates,
                "paths": paths,
            },
        )

    return answer


class _Medium(msgspec.Struct, frozen=True):
    """An object of one version as JSON or YAML."""

    kind: str
    version: str
    type: str

    def write(self, name: str, fields: Mapping[str, Any]) -> Response:
        tree = {"kind": self.kind, "apiVersion": f"{_GROUP}/{self.version}", "metadata": {"name": name}, **fields}
        if self.type == "application/json":
            body = msgspec.json.encode(tree)
        else:
            import yaml  # for which --help has no use

            body = yaml.safe_dump(tree).encode()
        return Response(200, {"content-type": self.type, "cache-control": "no-cache, no-store"}, body)


def _medium(request: Request, kind: str) -> _Medium | None:
    """Return the requested object format; None for text. Raises NotAcceptable."""
    for choice in request.headers.get("accept", "*/*").split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        if media in _ANY_TEXT:
            return None
        asked = dict(part.split("=", 1) for part in parameters if "=" in part)
        known = (asked.get("g"), asked.get("as")) == (_GROUP, kind) and asked.get("v") in _VERSIONS
        if known and media in ("application/json", "application/yaml"):
            return _Medium(kind, asked["v"], media)
    forms = [f"application/json;g={_GROUP};v={version};as={kind}" for version in _VERSIONS]
    raise NotAcceptable(f"only these can be had: text/plain, {', '.join(forms)}")


def _text(name: str, kind: str, lines: list[str]) -> Response:
    head = [f"{name} {kind.lower()}", _WARNING.format(kind=kind, group=_GROUP), ""]
    return Response(200, _TEXT, "".join(f"{line}\n" for line in ("", *head, *lines)).encode())


def _masked(value: Any) -> Any:
    """Return a flag value with secrets masked."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {key: _masked(one) for key, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list) else value
