"""Identities that an authenticating proxy states in headers: which headers they are, and how they are read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import unquote

from controller_manager.api.errors import Unauthorized
from controller_manager.api.wire import Request
from controller_manager.serving.access import Identity, is_text

_BROKEN_ESCAPE = re.compile(r"%(?![0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """Which proxies may speak for others, by the common names of their certificates (none: all that are trusted), and
    in which headers they do. Names of headers are compared without case.
    """

    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def allows(self, common_name: str) -> bool:
        """Whether a proxy of that name may speak for others."""
        return not self.allowed_names or common_name in self.allowed_names

    def identity(self, request: Request) -> Identity | None:
        """For whom a request speaks; None: for nobody.

        The first header of a list that has a value names user and uid; groups are all values of all their headers. Of
        an extra header, the key is what follows the prefix, in lower case and then percent-decoded. Raises Unauthorized
        for headers that are not UTF-8.
        """
        name = _first(request, self.username_headers)
        if not name:
            return None
        found = Identity(
            name, _all(request, self.group_headers), _first(request, self.uid_headers), self._extra(request)
        )
        if not all(map(is_text, (name, found.uid, *found.groups, *found.extra, *chain(*found.extra.values())))):
            raise Unauthorized("Unauthorized")
        return found

    def _extra(self, request: Request) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for prefix in map(str.lower, self.extra_prefixes):
            for header in request.headers:
                if header.startswith(prefix):
                    key = _decoded(header.removeprefix(prefix))
                    found[key] = (*found.get(key, ()), *request.values(header))
        return found


def _first(request: Request, headers: Sequence[str]) -> str:
    values = (request.values(header.lower())[:1] for header in headers)
    return next((value for one in values for value in one if value), "")


def _all(request: Request, headers: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for header in headers for value in request.values(header.lower()) if value)


def _decoded(key: str) -> str:
    """A key in percent-encoding; one that is not well encoded stands for itself."""
    return key if _BROKEN_ESCAPE.search(key) else unquote(key)
