"""`cluster-up --watch`: a table of the cluster in the terminal, redrawn every second."""

import asyncio
import os
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from controller_manager.common.api.errors import ApiError
from controller_manager.common.base.errors import describe
from controller_manager.common.transport.transport import TransportError

EVERY = 1.0
_NOTES = 5  # last lines of the process itself
_ACTED = 5  # controllers that acted last
_GAP = "  "
_COLORS = {"broken": "31", "struggling": "33", "waiting": "2", "well": "32"}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"

Document = Mapping[str, Any]
"""The data of `/ui/state`."""


class Screen:
    """The alternate screen of a terminal. Messages while it is open are shown in it, and printed after `close`."""

    def __init__(self, write: Callable[[str], None], *, colored: bool) -> None:
        self._write = write
        self._colored = colored
        self._lines: list[str] = []
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self.is_open = False

    def open(self) -> None:
        """Switch to the alternate screen."""
        self.is_open = True
        self._write(_ENTER)

    def close(self) -> None:
        """Switch back and print the messages of the meantime."""
        if self.is_open:
            self.is_open = False
            self._write(_LEAVE)
            self._write("".join(f"{line}\n" for line in self._lines))

    def say(self, line: str) -> None:
        """Show a line below the cluster, or print it while the screen is not open."""
        if self.is_open:
            self._lines.append(line)
            self._notes += line.splitlines()
        else:
            self._write(f"{line}\n")

    def draw(self, state: Document | None, problem: str) -> None:
        """Draw the last known state of the cluster."""
        width, height = shutil.get_terminal_size()
        below = [*([f"The manager does not answer: {problem}"] if problem else []), *self._notes]
        lines = lines_of(state, width, height - len(below) - 1, colored=self._colored) if state is not None else []
        shown = [*lines, *(clean(line)[:width] for line in below)]
        self._write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in shown[: height - 1]) + "\x1b[J")


async def watch(screen: Screen, ask: Callable[[], Awaitable[bytes]]) -> None:
    """Draw the data that `ask` returns, in the format of `/ui/state`, until cancelled."""
    state: Document | None = None
    screen.open()
    while True:
        problem = ""
        try:
            state = msgspec.json.decode(await ask())
        except (ApiError, TransportError, msgspec.DecodeError) as error:
            problem = describe(error)
        screen.draw(state, problem)
        await asyncio.sleep(EVERY)


def wants_color() -> bool:
    """Return whether colors are allowed (no-color.org)."""
    return not os.environ.get("NO_COLOR")


def clean(text: str) -> str:
    """Return a text of the cluster without terminal control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines_of(state: Document, width: int, height: int, *, colored: bool = False) -> list[str]:
    """Return the cluster in at most `height` lines of at most `width` characters."""
    manager, sections = state["manager"], state["sections"]
    now = datetime.fromisoformat(manager["time"])
    status = manager["stopping"] or manager["standingBy"] or manager["summary"]
    lines = [f"{manager['name']} at {now:%H:%M:%S} UTC: {status}", *_numbers(state), ""]
    tables = [
        _Table("WORKLOADS", sections.get("workloads"), now, kinds=True),
        _Table("PODS", sections.get("pods"), now),
        _Table("NODES", sections.get("nodes"), now),
        _Table("EVENTS", sections.get("events"), now, kinds=True),
    ]
    acted = list(_acted(state["controllers"]))
    room = height - len(lines) - (len(acted) + 1 if acted else 0)
    shares = _divide(room, [table.height for table in tables])
    plain = [clean(line)[:width] for line in lines]
    for table, share in zip(tables, shares, strict=True):
        plain += table.lines(width, share, colored=colored)
    return (plain + [clean(line)[:width] for line in (["CONTROLLERS THAT ACTED LAST", *acted] if acted else [])])[
        :height
    ]


def _numbers(state: Document) -> Iterator[str]:
    for name in ("nodes", "workloads", "pods"):
        section = state["sections"].get(name)
        if section is None:
            yield f"{name:<10} {'not to be listed' if name in state['denied'] else state['unread'].get(name) or '…'}"
        else:
            states = ", ".join(f"{one['count']} {one['state']}" for one in section["states"])
            yield f"{name:<10} {section['count']:>6}  {states}"


def _acted(controllers: Sequence[Document]) -> Iterator[str]:
    """Yield the last writes of controllers, newest first."""
    last = [(one["acted"][0], one["name"]) for one in controllers if one["acted"]]
    for act, name in sorted(last, key=lambda pair: pair[0]["seconds"])[:_ACTED]:
        because = f", because: {'; '.join(act['causes'])}" if act["causes"] else ""
        more = f" and {act['count'] - len(act['writes'])} more" if act["count"] > len(act["writes"]) else ""
        yield f"{_span(act['seconds']):>6}  {name}: {', '.join(act['writes'])}{more}{because}"


class _Table:
    """The rows of a section, under a head."""

    def __init__(self, title: str, section: Document | None, now: datetime, *, kinds: bool = False) -> None:
        self._rows = section["rows"] if section is not None else []
        heads = [*(("KIND",) if kinds else ()), title, "STATE"]
        heads += [head.upper() for head in (self._rows[0]["columns"] if self._rows else ())]
        self._heads = [*heads, "AGE", "WHY"]
        self._kinds = kinds
        self._now = now

    @property
    def height(self) -> int:
        """The desired number of lines; 0 without rows."""
        return len(self._rows) + 2 if self._rows else 0

    def lines(self, width: int, height: int, *, colored: bool) -> list[str]:
        """Return at most `height` lines, the last of them empty."""
        if height < 3:
            return []
        rows = self._rows[: height - 2]
        cells = [self._heads, *(self._cells(row) for row in rows)]
        used = [place for place in range(len(self._heads)) if any(line[place] for line in cells[1:])]
        widths = {place: max(len(line[place]) for line in cells) for place in used}
        made = [_GAP.join(line[place].ljust(widths[place]) for place in used)[:width].rstrip() for line in cells]
        if colored:
            made[1:] = [
                f"\x1b[{_COLORS[row['severity']]}m{line}\x1b[0m" for row, line in zip(rows, made[1:], strict=True)
            ]
        return [*made, ""]

    def _cells(self, row: Document) -> list[str]:
        name = f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]
        age = _span((self._now - datetime.fromisoformat(row["since"])).total_seconds()) if row["since"] else ""
        found = [
            *((row["kind"],) if self._kinds else ()),
            name,
            row["state"],
            *row["columns"].values(),
            age,
            row["why"],
        ]
        return [clean(cell) for cell in found]


def _divide(room: int, wanted: Sequence[int]) -> list[int]:
    """Return the number of lines for each table: what it wants, or an even share of the rest."""
    shares, left = [0] * len(wanted), room
    for rank, place in enumerate(sorted(range(len(wanted)), key=lambda place: wanted[place])):
        shares[place] = max(0, min(wanted[place], left // (len(wanted) - rank)))
        left -= shares[place]
    return shares


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
