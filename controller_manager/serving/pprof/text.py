"""Profiles as text, for people without pprof: `?debug=1`, and for tasks `?debug=2`."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from controller_manager.serving.pprof.profile import Labels, Profile, Stack
from controller_manager.serving.pprof.stacks import Places
from controller_manager.serving.pprof.tasks import TaskState

_MOST_VALUES = 5  # of a label, shown for one stack


def as_text(name: str, profile: Profile) -> str:
    """Stacks with their values, the largest first; equal stacks are one, with the labels they were seen with."""
    column = [unit.type for unit in profile.units].index(profile.main)
    values: dict[Stack, list[int]] = {}
    labels: dict[Stack, list[Labels]] = defaultdict(list)
    for sample in profile.samples:
        sums = values.setdefault(sample.stack, [0] * len(profile.units))
        values[sample.stack] = [a + b for a, b in zip(sums, sample.values, strict=True)]
        labels[sample.stack].append(sample.labels)
    heads = [f"{name} profile: total {sum(sums[column] for sums in values.values())}"]
    heads += [f"# {comment}" for comment in profile.comments]
    heads += [f"# columns: {', '.join(f'{unit.type}/{unit.unit}' for unit in profile.units)}", ""]
    for stack, sums in sorted(values.items(), key=lambda item: item[1][column], reverse=True):
        heads.append(f"{' '.join(map(str, sums))} @")
        heads += _labels(labels[stack])
        heads += [
            f"#\t{frame.function}\t{frame.file}:{frame.line}" if frame.file else f"#\t{frame.function}"
            for frame in stack
        ]
        heads.append("")
    return "\n".join(heads)


def tasks_as_text(tasks: Iterable[TaskState]) -> str:
    """Every task for itself, in order of their names."""
    places = Places()
    blocks = []
    for task in sorted(tasks, key=lambda one: one.name):
        state = f"{task.state} for {task.waits_for}" if task.waits_for else task.state
        frames = [f"{frame.function}()\n\t{frame.file}:{frame.line}" for frame in places.stack(task.stack)]
        blocks.append("\n".join((f'task "{task.name}" [{state}]:', *frames)))
    return "\n\n".join((*blocks, ""))


def _labels(found: list[Labels]) -> Iterable[str]:
    seen: dict[str, Counter[str | int]] = defaultdict(Counter)
    for labels in found:
        for name, value in labels:
            seen[name][value] += 1
    for name, values in seen.items():
        shown = [f"{value} ({count})" if count > 1 else str(value) for value, count in values.most_common(_MOST_VALUES)]
        more = len(values) - len(shown)
        yield f"# {name}: {', '.join(shown)}{f' and {more} more' if more else ''}"
