"""Profiles in pprof format (profile.proto of github.com/google/pprof, gzipped) and as text.

`?debug=1` selects text; tasks also support `?debug=2`.
"""

import gzip
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from controller_manager.common.api.protobuf.wire import MessageWriters
from controller_manager.common.base.stacks import Stack, StackFrame
from controller_manager.common.serving.pprof.profile import NANOSECONDS, Modules, Profile, Tally, Unit
from controller_manager.common.serving.pprof.tasks import TaskState

MEDIA_TYPE = "application/octet-stream"

_MESSAGES = {  # in the format of `api.protobuf.table`
    "pprof.Profile": {
        "1": ["sample_type", "pprof.ValueType", "list"], "2": ["sample", "pprof.Sample", "list"],
        "3": ["mapping", "pprof.Mapping", "list"], "4": ["location", "pprof.Location", "list"],
        "5": ["function", "pprof.Function", "list"], "6": ["string_table", "string", "list"],
        "9": ["time_nanos", "int"], "10": ["duration_nanos", "int"],
        "11": ["period_type", "pprof.ValueType", "pointer"], "12": ["period", "int"],
        "13": ["comment", "int", "list"], "14": ["default_sample_type", "int"],
    },
    "pprof.ValueType": {"1": ["type", "int"], "2": ["unit", "int"]},
    "pprof.Sample": {
        "1": ["location_id", "int", "list"], "2": ["value", "int", "list"], "3": ["label", "pprof.Label", "list"],
    },
    "pprof.Label": {"1": ["key", "int"], "2": ["str", "int"]},
    "pprof.Mapping": {
        "1": ["id", "int"], "5": ["filename", "int"], "7": ["has_functions", "bool"], "8": ["has_filenames", "bool"],
        "9": ["has_line_numbers", "bool"], "10": ["has_inline_frames", "bool"],
    },
    "pprof.Location": {"1": ["id", "int"], "2": ["mapping_id", "int"], "4": ["line", "pprof.Line"]},
    "pprof.Line": {"1": ["function_id", "int"], "2": ["line", "int"]},
    "pprof.Function": {
        "1": ["id", "int"], "2": ["name", "int"], "3": ["system_name", "int"], "4": ["filename", "int"],
        "5": ["start_line", "int"],
    },
}  # fmt: skip
_WRITER = MessageWriters(_MESSAGES)["pprof.Profile"]
_NOTHING_TO_LOOK_UP = dict.fromkeys(("has_functions", "has_filenames", "has_line_numbers", "has_inline_frames"), True)
_MOST_VALUES = 5  # label values shown per stack


def encode(profile: Profile, program: str) -> bytes:
    """Return the profile of `program` as a file for `go tool pprof`."""
    return gzip.compress(_WRITER.message(_Tables().tree(profile, program)), compresslevel=3, mtime=0)


class _Numbers(dict[Hashable, int]):
    """Assigns the next number to each new value."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self) + self._first
        return number


class _Tables:
    """Builds the tables of the format, which hold everything that repeats in a profile."""

    def __init__(self) -> None:
        self._modules = Modules()
        self._texts = _Numbers(0)
        self._text("")  # must be first in the format
        self._frames = _Numbers(1)
        self._functions = _Numbers(1)

    def tree(self, profile: Profile, program: str) -> dict[str, Any]:
        """Return the profile as a message. The tables are added last, since they are complete only after everything
        that refers to them.
        """
        tree: dict[str, Any] = {
            "sample_type": [self._unit(unit) for unit in profile.units],
            "sample": [
                {
                    "location_id": [self._frames[one] for one in stack],
                    "value": values,
                    "label": [{"key": self._text(key), "str": self._text(value)} for key, value in labels],
                }
                for stack, labels, values in profile.samples
            ],
            "mapping": [{"id": 1, "filename": self._text(program), **_NOTHING_TO_LOOK_UP}],
            "time_nanos": round(profile.time * 1e9),
            "duration_nanos": round(profile.duration * 1e9),
            "period": profile.period,
            "period_type": self._unit(Unit("cpu", NANOSECONDS)) if profile.period else None,
            "comment": [self._text(comment) for comment in profile.comments],
            "default_sample_type": self._text(profile.main),
        }
        tree["location"] = [self._location(frame, number) for frame, number in self._frames.items()]
        tree["function"] = [self._function(frame, number) for frame, number in self._functions.items()]
        return {**tree, "string_table": self._texts}

    def _text(self, text: str) -> int:
        return self._texts[text.encode(errors="replace").decode()]

    def _unit(self, unit: Unit) -> dict[str, int]:
        return {"type": self._text(unit.type), "unit": self._text(unit.unit)}

    def _location(self, frame: Any, number: int) -> dict[str, Any]:
        function = self._functions[frame._replace(line=0)]
        return {"id": number, "mapping_id": 1, "line": {"function_id": function, "line": frame.line}}

    def _function(self, frame: Any, number: int) -> dict[str, int]:
        name, file = self._text(self._modules.name(frame)), self._text(frame.file)
        return {"id": number, "name": name, "system_name": name, "filename": file, "start_line": frame.first_line}


def as_text(name: str, profile: Profile) -> str:
    """Return stacks with their values, the largest first; equal stacks are merged, with all their labels."""
    column = [unit.type for unit in profile.units].index(profile.main or profile.units[-1].type)
    sums, modules = Tally(len(profile.units)), Modules()
    seen: dict[Stack, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for stack, labels, values in profile.samples:
        sums.add(stack, (), *values)
        for label, value in labels:
            seen[stack][label][value] += 1
    lines = [f"{name} profile: total {sums.total(column)}", *(f"# {comment}" for comment in profile.comments)]
    lines += [f"# columns: {', '.join(map('/'.join, profile.units))}", ""]
    for stack, _, values in sorted(sums.samples(), key=lambda one: one.values[column], reverse=True):
        lines += [f"{' '.join(map(str, values))} @", *(_label(label, found) for label, found in seen[stack].items())]
        lines += [*(f"#\t{modules.name(frame)}{_place(frame)}" for frame in stack), ""]
    return "\n".join(lines)


def tasks_as_text(tasks: Iterable[TaskState]) -> str:
    """Return every task separately, in order of their names."""
    return "\n\n".join((*_tasks(tasks), ""))


def _tasks(tasks: Iterable[TaskState]) -> Iterator[str]:
    modules = Modules()
    for task in sorted(tasks, key=lambda one: one.name):
        state = f"{task.state} for {task.waits_for}" if task.waits_for else task.state
        frames = [f"{modules.name(frame)}()\n{_place(frame)}" for frame in task.stack]
        yield "\n".join((f'task "{task.name}" [{state}]:', *frames))


def _place(frame: StackFrame) -> str:
    return f"\t{frame.file}:{frame.line}" if frame.file else ""


def _label(name: str, values: Counter[str]) -> str:
    shown = [f"{value} ({count})" if count > 1 else value for value, count in values.most_common(_MOST_VALUES)]
    more = len(values) - len(shown)
    return f"# {name}: {', '.join(shown)}{f' and {more} more' if more else ''}"
