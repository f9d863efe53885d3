"""Profiles as text, for people without pprof: `?debug=1`, and for tasks `?debug=2`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from controller_manager.base.stacks import Frame, Stack
from controller_manager.serving.pprof.modules import Modules
from controller_manager.serving.pprof.profile import Profile, Tally
from controller_manager.serving.pprof.tasks import TaskState

_MOST_VALUES = 5  # of a label, shown for one stack


def as_text(name: str, profile: Profile) -> str:
    """Stacks with their values, the largest first; equal stacks are one, with the labels they were seen with."""
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
    """Every task for itself, in order of their names."""
    return "\n\n".join((*_tasks(tasks), ""))


def _tasks(tasks: Iterable[TaskState]) -> Iterator[str]:
    modules = Modules()
    for task in sorted(tasks, key=lambda one: one.name):
        state = f"{task.state} for {task.waits_for}" if task.waits_for else task.state
        frames = [f"{modules.name(frame)}()\n{_place(frame)}" for frame in task.stack]
        yield "\n".join((f'task "{task.name}" [{state}]:', *frames))


def _place(frame: Frame) -> str:
    return f"\t{frame.file}:{frame.line}" if frame.file else ""


def _label(name: str, values: Counter[str]) -> str:
    shown = [f"{value} ({count})" if count > 1 else value for value, count in values.most_common(_MOST_VALUES)]
    more = len(values) - len(shown)
    return f"# {name}: {', '.join(shown)}{f' and {more} more' if more else ''}"
