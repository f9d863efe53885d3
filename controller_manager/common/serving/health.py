"""Health endpoints: named checks at /healthz, /livez and /readyz (API concepts, Health endpoints)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Gauges

Check = Callable[[], str]
"""Returns the reason why a component is unhealthy, for the log; an empty text if it is healthy."""

Note = Callable[[], str]
"""Returns a public note that `?verbose` shows for a healthy component; usually empty."""

ENDPOINTS = ("healthz", "livez", "readyz")
_RESULT = Family(
    "kubernetes_healthcheck",
    "Result of the last run of a health check: 1 if it passed.",
    "gauge",
    ("name", "type"),
    stability="STABLE",
)
_RESULTS = Family(
    "kubernetes_healthchecks_total",
    "Number of health check results.",
    "counter",
    ("name", "type", "status"),
    stability="STABLE",
)
_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-type": "text/plain; charset=utf-8",
        "cache-control": "no-cache, private",
        "x-content-type-options": "nosniff",
    }
)


class _Named(msgspec.Struct, frozen=True):
    name: str
    check: Check
    endpoints: frozenset[str]
    also: frozenset[str] = frozenset()
    note: Note = str

    def is_called(self, name: str) -> bool:
        """Return whether the name or an alias of this check is `name`."""
        return name == self.name or name in self.also


class Health:
    """The health checks of one process, in order of registration; `ping` always exists and always passes.

    `indicators` holds the results as metrics, for /metrics/slis (KEP-3466).
    """

    def __init__(self, log: Logger) -> None:
        self.indicators = CollectorRegistry()
        self._log = log
        self._result, self._results = Gauges(_RESULT, self.indicators), Counters(_RESULTS, self.indicators)
        self._checks = [_Named("ping", lambda: "", frozenset(ENDPOINTS))]
        self._noted: dict[str, Mapping[str, str]] = {}
        self._passed: set[str] = set()
        self._taken = {("ping", endpoint) for endpoint in ENDPOINTS}  # names in use, by endpoint

    def add(
        self,
        name: str,
        check: Check,
        endpoints: Iterable[str] = ENDPOINTS,
        also: Iterable[str] = (),
        note: Note = str,
    ) -> None:
        """Add a check to some endpoints; its name must be unique there. `also` are aliases."""
        added = _Named(name, check, frozenset(endpoints), frozenset(also), note)
        taken = {(name, endpoint) for endpoint in added.endpoints}
        if not taken.isdisjoint(self._taken):
            raise ValueError(f"there is a health check {name!r} already")
        self._taken |= taken
        self._checks.append(added)

    def answer(self, request: Request) -> Response | None:
        """Return the response if the path is a health path, otherwise None."""
        endpoint, _, name = request.path.removeprefix("/").partition("/")
        if endpoint not in ENDPOINTS:
            return None
        if request.method != "GET":
            return Response(405, {**_HEADERS, "allow": "GET, HEAD"}, b"method not allowed\n")
        checks = [one for one in self._checks if endpoint in one.endpoints]
        verbose = any(key == "verbose" for key, _ in request.query)
        if not name:
            excluded = [value for key, value in request.query if key == "exclude" and value]
            return self._all(endpoint, endpoint, checks, excluded, verbose=verbose)
        found = [one for one in checks if one.is_called(name)]
        if not found:
            return Response(404, _HEADERS, b"no such check\n")
        return self._all(name, endpoint, found, [], verbose=verbose)

    def _all(
        self, title: str, endpoint: str, checks: Sequence[_Named], excluded: Sequence[str], *, verbose: bool
    ) -> Response:
        lines: list[str] = []
        failed: dict[str, str] = {}
        without = [one.name for one in checks if any(map(one.is_called, excluded))]
        for one in checks:
            if one.name in without:
                lines.append(f"[+]{one.name} excluded: ok")
            elif why := self._ask(one, endpoint):
                failed[one.name] = why
                lines.append(f"[-]{one.name} failed: reason withheld")
            else:
                problem = one.note()
                lines.append(f"[+]{one.name} ok{problem and ': '}{problem}")
        unknown = sorted(name for name in set(excluded) if not any(one.is_called(name) for one in checks))
        if unknown:
            quoted = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        if not without:  # clients may exclude too many combinations to remember
            self._note(title, failed)
        if failed:
            return _text(500, [*lines, f"{title} check failed"])
        return _text(200, [*lines, f"{title} check passed"]) if verbose else Response(200, _HEADERS, b"ok")

    def _ask(self, one: _Named, endpoint: str) -> str:
        why = one.check()
        self._result.set(0 if why else 1, one.name, endpoint)
        self._results.add(one.name, endpoint, "error" if why else "success")
        return why

    def _note(self, title: str, failed: Mapping[str, str]) -> None:
        """Log a changed result, not every probe; a check that has never passed is not logged as a failure."""
        before = self._noted.get(title)
        if before == failed:
            return
        if title not in self._passed and failed:
            if before is None:
                self._log.info("health check does not pass yet", check=title, failed=failed)
        elif failed:
            self._log.warning("health check fails", check=title, failed=failed)
        elif before:
            self._log.info("health check passes", check=title)
        self._noted[title] = failed
        if not failed:
            self._passed.add(title)


def _text(status: int, lines: Sequence[str]) -> Response:
    return Response(status, _HEADERS, "".join(f"{line}\n" for line in lines).encode())
