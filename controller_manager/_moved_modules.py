"""Import modules by the names of version 0.1, and public names from the packages that offered them until now, with a
DeprecationWarning. Version 0.3 drops these aliases.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOT = "controller_manager"
_HOMES = {
    "common": ("api", "base", "cel", "component", "options", "serving", "transport"),
    "framework": ("cache", "client", "cloud_provider", "controller", "leader", "work"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_PUBLIC = "framework"
_RENAMED = {"GiveUp": "TerminalError", "Rule": "PolicyRule", "Spec": "ControllerSpec"}
_EVERY = "*"
_AUTHORS = {
    _PUBLIC: _EVERY,
    "framework.controller.history": "RecordedRevision",
    "framework.controller.writes": "Batched",
    "framework.work.spinning": "SHORTEST_REQUEUE",
}
_MOVED = {  # package: where its former names are
    "framework": _AUTHORS,
    "framework.controller": _AUTHORS,
    "framework.client": {
        _PUBLIC: "STRATEGIC_MERGE_PATCH Client ConfigError TransportError WatchEvent",
        "framework.client.client": "MERGE_PATCH",
        "framework.client.codec": "Listing Unreadable UnreadableAnswer WriteResult",
        "framework.client.requests": "JSON PROTOBUF AdaptiveThrottle ClientMetrics RequestEncoder Throttle",
        "common.transport.authenticated": "InProcessTransport",
        "common.transport.config": "ClientConfig",
        "common.transport.http_transport": "HttpTransport",
        "common.transport.transport": "Transport",
    },
    "common.cel": {
        "common.cel.environment": "ProgramError",
        "common.cel.syntax": "Issue",
        "common.cel.types": "Field Type",
    },
    "common.options": {
        _PUBLIC: "Duration Int32 Options Quantity StringList StringMap",
        "common.options.command_line": "reported_version",
        "common.options.flag": "release_version",
        "common.options.gates": "Gate Version gates_at resolve_gates",
        "common.options.parse": "Check FlagError FlagSet Parsed",
        "common.options.types": "StringMultimap StringPairs",
    },
}


def new_name(name: str) -> str:
    """Return the present name of a module; empty if it has no other than `name`."""
    root, _, rest = name.partition(".")
    home = _HOME_OF.get(rest.partition(".")[0], "")
    return f"{root}.{home}.{rest}" if root == _ROOT and home else ""


class _Alias(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(new_name(module.__name__))


class MovedModules(MetaPathFinder):
    """Finds the old names; each is the very module that has the new name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        moved = new_name(fullname)
        if not moved:
            return None
        warnings.warn(f"{fullname} is now {moved}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, _Alias())


def moved_names(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: it finds names that the package offered before."""
    homes = {name: home for home, names in _MOVED[package.removeprefix(f"{_ROOT}.")].items() for name in names.split()}

    def find(name: str) -> Any:
        new = _RENAMED.get(name, name)
        home = homes.get(new) or homes.get(_EVERY)
        module = importlib.import_module(f"{_ROOT}.{home}") if home else None
        if module is None or (new not in homes and new not in module.__all__):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warnings.warn(f"{package}.{name} is now {module.__name__}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(module, new)

    return find
