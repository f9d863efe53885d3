"""The identity of a program: its name, by which everything it does goes, its controllers and its flags."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller_manager.app import catalog
from controller_manager.app.catalog import KNOWN
from controller_manager.app.flags import flag_set
from controller_manager.options import FlagSet

_SUMMARY = (
    "Runs the control loops that bring the state of a cluster to what its users asked for. Several replicas may run: "
    "one leads, the others stand by."
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Program:
    """`notes` are paragraphs by heading for the end of its help."""

    name: str
    specs: Sequence[catalog.AnySpec]
    flags: FlagSet
    notes: Mapping[str, str]
    summary: str = _SUMMARY


def manager_program() -> Program:
    """The controller manager, with everything that is installed."""
    specs = catalog.installed()
    return Program("cluster-controller-manager", specs, flag_set(specs), catalog.notes(specs))


def author_program(name: str, specs: Sequence[catalog.AnySpec], *, builtins: bool = False) -> Program:
    """A program of somebody's own. Its lease is called like it, and its port is one that is free: its author runs it
    beside other managers. Raises ValueError for a name that no lease can have, or two controllers of one name.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a program has lower-case letters, digits and dashes, 63 at most: not {name!r}")
    every = catalog.in_order((*specs, *catalog.installed()) if builtins else specs)
    flags = flag_set(every, awaited=builtins, defaults={"leader-elect-resource-name": name, "secure-port": None})
    return Program(name, every, flags, catalog.notes(every, KNOWN if builtins else ()))
