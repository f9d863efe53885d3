"""The package of controllers that comes with this distribution, whatever else in the world is called `controllers`."""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_NAME = "controllers"
_PRIVATE = "controller_manager_builtins"


def builtin_package() -> ModuleType:
    """The `controllers` that stands beside `controller_manager`.

    It goes by its own name unless a package of somebody else comes first under that: in the working directory or on
    `PYTHONPATH`, as every project of an operator has one. Then it goes by a name of ours, and both can be imported.
    """
    home = Path(__file__).resolve().parents[2] / _NAME / "__init__.py"
    return import_module(_NAME) if _found_under(_NAME) == home else _load(home)


def _found_under(name: str) -> Path | None:
    """The file that `import name` loads, or has loaded."""
    try:
        spec = find_spec(name)
    except ValueError:  # something without a specification was put in its place
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _load(home: Path) -> ModuleType:
    if _PRIVATE not in sys.modules:
        spec = spec_from_file_location(_PRIVATE, home, submodule_search_locations=[str(home.parent)])
        assert spec is not None
        assert spec.loader is not None
        package = module_from_spec(spec)
        sys.modules[_PRIVATE] = package
        spec.loader.exec_module(package)
    return sys.modules[_PRIVATE]
