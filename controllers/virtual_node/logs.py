"""Simulated logs of containers, derived from their status and the time; pure."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.timestamps import time_of

from .pods import ContainerStatus, Terminated, VirtualPod, moment

EVERY = 10.0
"""Seconds between two lines of a running container."""


class LogOptions(NamedTuple):
    """The options of a log request."""

    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float = 0.0
    limit: int | None = None


class Line(NamedTuple):
    """A log line with its time (seconds since the epoch)."""

    at: float
    text: str

    def encode(self, *, timestamp: bool) -> bytes:
        """Return the encoded line."""
        when = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="microseconds")[:26]
        return f"{when}000Z {self.text}\n".encode() if timestamp else f"{self.text}\n".encode()


class ContainerRun(NamedTuple):
    """One run of a container, which may be in progress."""

    status: ContainerStatus
    began: float
    end: Terminated | None

    def lines(self, after: float, now: float) -> Iterator[Line]:
        """Yield the lines after a time, until now."""
        last = moment(self.end.finished_at) if self.end is not None else now
        if self.began > after:
            yield Line(self.began, f"simulated: {self.status.name} starts, of the image {self.status.image}")
        number = max(1, int((after - self.began) // EVERY) + 1)
        while self.began + number * EVERY <= last:
            yield Line(self.began + number * EVERY, f"simulated: up for {number * EVERY:g} s")
            number += 1
        if self.end is not None and last > after:
            yield Line(last, f"simulated: ends with exit code {self.end.exit_code}")


def run_of(pod: VirtualPod, container: str, *, previous: bool) -> ContainerRun:
    """Return the requested run of a container. Raises BadRequest."""
    status = next((one for one in pod.statuses() if one.name == container), None)
    name = pod.metadata.name
    if status is None:
        raise BadRequest(f'container "{container}" in pod "{name}" is not known to its node')
    state = status.last_state if previous else status.state
    if state.running is not None:
        return ContainerRun(status, moment(state.running.started_at), None)
    if state.waiting is not None and not previous and status.last_state.terminated is not None:
        state = status.last_state
    if state.terminated is not None:
        return ContainerRun(status, moment(state.terminated.started_at), state.terminated)
    if previous:
        raise BadRequest(f'previous terminated container "{container}" in pod "{name}" not found')
    reason = state.waiting.reason if state.waiting is not None else "unknown"
    raise BadRequest(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def log_of(run: ContainerRun, options: LogOptions, now: float) -> list[Line]:
    """Return the present lines of a log."""
    longest = 100_000  # lines, of some days
    first = max(options.since, (now if run.end is None else moment(run.end.finished_at)) - longest * EVERY, 0.0)
    found = list(run.lines(first, now))
    return found if options.tail is None else found[len(found) - min(options.tail, len(found)) :]


def log_options(query: tuple[tuple[str, str], ...], now: float) -> LogOptions:
    """Return the options of a query. Raises BadRequest."""
    given = dict(query)
    since = time_of(given.get("sinceTime", ""))
    return LogOptions(
        previous=given.get("previous") == "true",
        follow=given.get("follow") == "true",
        timestamps=given.get("timestamps") == "true",
        tail=_number(given, "tailLines"),
        since=now - (_number(given, "sinceSeconds") or now) if since is None else since.timestamp(),
        limit=_number(given, "limitBytes"),
    )


def _number(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest(f"{name} is not a number")
    return int(text)
