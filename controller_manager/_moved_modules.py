"""Import modules by the names they had in version 0.1, with a DeprecationWarning. Version 0.3 drops these aliases."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_ROOT = "controller_manager"
_HOMES = {
    "common": ("api", "base", "cel", "component", "options", "serving", "transport"),
    "framework": ("cache", "client", "cloud_provider", "controller", "leader", "work"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


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
