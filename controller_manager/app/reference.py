"""Generates the reference of all flags: `python -m controller_manager.app.reference > FLAGS.md`."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from controller_manager.app import catalog
from controller_manager.app.features import READ, ManagerFeatureOptions
from controller_manager.app.program import flag_set
from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.component.features import known_gates
from controller_manager.common.options.command_line import bounds, inert_flags, sentence
from controller_manager.common.options.flag import Flag, title_of
from controller_manager.common.options.gates import Gate, gates_at
from controller_manager.common.options.parse import FlagSet

_HEAD = """\
# Flags of `cluster-controller-manager`

Written by `python -m controller_manager.app.reference`. The same text is in `--help`; `/flagz` shows the values a
running process has. The names that kube-controller-manager uses are accepted too, and `_` for `-`.

| type | how it is written |
|--|--|
| bool | `--x`, `--x=true`, `--x=false`; never with a space |
| duration | `300ms`, `1.5h`, `2h45m` |
| quantity | `512`, `64Ki`, `10M` |
| strings | `a,b`, or the flag several times; a value with a comma stands in double quotes |
| stringToString | `key=value,key=value`, or the flag several times |
| colonSeparatedMultimapStringString | `kube:Name=true,Name=false`, or the flag several times |
"""
_INERT = """
## Flags without effect

They are read and checked like all others, so that the command line of an existing control plane starts this one; the
log says at the start which of those given have no effect.
"""
_GATES = f"""
## Feature gates

`--feature-gates` switches them, `--emulated-version` goes back to the defaults of an older version.

| gate | in {API_VERSION} | by default | what it does here |
|--|--|--|--|
"""
_OTHER_GATES = f"""
All other gates that Kubernetes has in {API_VERSION}, or had shortly before, are accepted, so that the command line of
an existing control plane starts this one; the log says at the start that those given have no effect.
"""
_CONTROLLERS = """
## Controllers

`--controllers` takes these names.

| name | also | by default |
|--|--|--|
"""


def page(specs: Sequence[catalog.AnySpec]) -> str:
    """Return the page for a process with these controllers."""
    flags = flag_set(specs)
    parts = [_HEAD, *_sections(flags), *_inert_sections(flags), *_gates(), *_controllers(specs)]
    return "".join(parts)


def _sections(flags: FlagSet) -> Iterator[str]:
    for group, members in flags.flags.items():
        if acting := [flag for flag in members if not flag.declared.inert]:
            yield f"\n## {title_of(group)}\n\n{_table(acting)}"


def _inert_sections(flags: FlagSet) -> Iterator[str]:
    found = inert_flags(flags)
    if found:
        yield _INERT
    for why, members in found.items():
        yield f"\n### {sentence(why).removesuffix('.')}\n\n{_table(members)}"


def _table(flags: Iterable[Flag]) -> str:
    return "| flag | type | default | meaning |\n|--|--|--|--|\n" + "".join(map(_row, flags))


def _row(flag: Flag) -> str:
    declared = flag.declared
    short = f"`-{declared.short}`, " if declared.short else ""
    also = "".join(f"<br>`--{alias}`" for alias in declared.aliases)
    default = "" if flag.default is None else flag.type.format(flag.default)
    limits = sentence(", ".join(bounds(flag))) if bounds(flag) else ""
    meaning = f"{sentence(declared.help)} {limits}".strip().replace("|", "\\|").replace("*", "\\*")
    return f"| {short}`--{flag.name}`{also} | {flag.type.label} | {_code(default)} | {meaning} |\n"


def _gates() -> Iterator[str]:
    now = {gate.name: gate for gate in gates_at(known_gates(), ManagerFeatureOptions().version)}
    yield _GATES
    for name, effect in sorted(READ.items()):
        yield f"| `{name}` | {_stage(now[name])} | {'on' if now[name].default else 'off'} | {effect} |\n"
    yield _OTHER_GATES
    rest = set(now) - set(READ)
    for title, names in unread_gates().items():
        yield _gate_list(title, names & rest)
        rest -= names
    yield _gate_list("Off by default, and not built here", rest)


def unread_gates() -> dict[str, frozenset[str]]:
    """Return the gates that are on by default and that the manager accepts but does not read, by reason."""
    text = files(__package__).joinpath("unread_gates.json").read_text()
    return {title: frozenset(names) for title, names in json.loads(text).items()}


def _gate_list(title: str, names: Iterable[str]) -> str:
    return f"\n**{title}**: {', '.join(f'`{name}`' for name in sorted(names))}.\n"


def _stage(gate: Gate) -> str:
    return f"{gate.stage}{', locked' if gate.locked else ''}"


def _controllers(specs: Sequence[catalog.AnySpec]) -> Iterator[str]:
    yield _CONTROLLERS
    for spec in sorted(specs, key=lambda one: one.name):
        yield f"| `{spec.name}` | {_code(', '.join(spec.aliases))} | {'on' if spec.default_on else 'off'} |\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    sys.stdout.write(page(catalog.installed()))
