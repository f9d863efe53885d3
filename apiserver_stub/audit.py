"""How a request is called in answers and logs, so that both can be brought together."""

from collections.abc import Mapping

from controller_manager.base.random import random_source

HEADER = "audit-id"
_PREFIX = 24  # characters of a UUID before its last group, which counts


class AuditIds:
    """Gives each request that brings no identifier one of its own, in the form of a UUID."""

    def __init__(self) -> None:
        self._prefix = ""
        self._count = 0

    def of(self, headers: Mapping[str, str]) -> str:
        """What the caller calls its request, as it came, or a new identifier."""
        given = headers.get(HEADER)
        if given:
            return given
        if not self._prefix:
            self._prefix = random_source().uid()[:_PREFIX]
        self._count += 1
        return f"{self._prefix}{self._count:012x}"
