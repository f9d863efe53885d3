"""/flagz and /statusz: with which flags this process runs, and what it is, as text for people or as objects.

KEP-4827 and KEP-4828; the objects are of the group config.k8s.io, asked for by `g`, `v` and `as` in `Accept`.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from controller_manager.api.errors import NotAcceptable
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.api.timestamps import format_time
from controller_manager.api.wire import Request, Response
from controller_manager.app.pages.routes import Handler
from controller_manager.base.clock import utc_now

_GROUP = f"config.{GROUP_DOMAIN}"
_VERSIONS = ("v1beta1", "v1alpha1")
_TEXT = {
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-cache, no-store",
    "x-content-type-options": "nosniff",
}
_WARNING = "Warning: this page is for people; its format may change at any time. Ask for {kind} of {group} instead."
_ANY_TEXT = ("*/*", "text/*", "text/plain")


@dataclass(frozen=True, slots=True)
class About:
    """What a process says of itself: the versions it is of and emulates, and when it started."""

    name: str
    version: str
    emulates: str


def flagz_handler(about: About, values: Mapping[str, str]) -> Handler:
    """Answers /flagz: every flag with its value in effect, as one would write it on a command line."""
    flags = dict(sorted(values.items()))

    async def answer(request: Request) -> Response:
        medium = _medium(request, "Flagz")
        if medium is None:
            return _text(about.name, "Flagz", [f"{name}={value}" for name, value in flags.items()])
        return medium.write(about.name, {"flags": flags})

    return answer


def statusz_handler(about: About, paths: list[str]) -> Handler:
    """Answers /statusz: versions, age and the `paths` there are."""
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


@dataclass(frozen=True, slots=True)
class _Medium:
    """An object of one version, as JSON or YAML."""

    kind: str
    version: str
    type: str

    def write(self, name: str, fields: Mapping[str, Any]) -> Response:
        tree = {"kind": self.kind, "apiVersion": f"{_GROUP}/{self.version}", "metadata": {"name": name}, **fields}
        body = msgspec.json.encode(tree) if self.type == "application/json" else yaml.safe_dump(tree).encode()
        return Response(200, {"content-type": self.type, "cache-control": "no-cache, no-store"}, body)


def _medium(request: Request, kind: str) -> _Medium | None:
    """The object that is asked for; None for text. Raises NotAcceptable."""
    for choice in request.headers.get("accept", "*/*").split(","):
        media, *said = (part.strip() for part in choice.split(";"))
        if media in _ANY_TEXT:
            return None
        asked = dict(part.split("=", 1) for part in said if "=" in part)
        known = (asked.get("g"), asked.get("as")) == (_GROUP, kind) and asked.get("v") in _VERSIONS
        if known and media in ("application/json", "application/yaml"):
            return _Medium(kind, asked["v"], media)
    forms = [f"application/json;g={_GROUP};v={version};as={kind}" for version in _VERSIONS]
    raise NotAcceptable(f"only these can be had: text/plain, {', '.join(forms)}")


def _text(name: str, kind: str, lines: list[str]) -> Response:
    head = [f"{name} {kind.lower()}", _WARNING.format(kind=kind, group=_GROUP), ""]
    return Response(200, _TEXT, "".join(f"{line}\n" for line in ("", *head, *lines)).encode())
