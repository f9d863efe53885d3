"""Prints the public surface: every name that a package offers in `__all__`, with its signature."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

WRITTEN = Path(__file__).with_name("surface.txt")
PACKAGES = (
    "controller_manager.common.cel",
    "controller_manager.framework.cloud_provider",
    "controller_manager.framework",
    "controller_manager.testing",
    "controller_manager.testing.builders",
)


def surface() -> str:
    return "".join(f"{line}\n" for package in PACKAGES for line in _lines(package))


def _lines(package: str) -> Iterator[str]:
    module = importlib.import_module(package)
    for name in sorted(module.__all__):
        found = getattr(module, name)
        yield f"{package}.{name}{_signature(found)}"
        if inspect.isclass(found):
            for member, value in sorted(vars(found).items()):
                if not member.startswith("_") and callable(value):
                    yield f"    {member}{_signature(value)}"


def _signature(found: object) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(found))) if callable(found) else ""
    except ValueError:
        return ""


if __name__ == "__main__":
    WRITTEN.write_text(surface())
    print(surface(), end="")
