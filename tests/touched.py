"""Prints the tests whose seeds a change may break: `python tests/touched.py BASE` compares with a commit."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_EVERYWHERE = ("controllers/shared/", "controller_manager/framework/", "controller_manager/testing/")


def touched(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return folders and files of tests, without those inside another one."""
    found = {path for one in changed for path in _tests_of(one, root) if (root / path).exists()}
    return sorted(path for path in found if not any(other in found for other in map(str, Path(path).parents)))


def _tests_of(changed: str, root: Path) -> Iterator[str]:
    package, *inner = changed.removesuffix(".py").split("/")
    if package == "tests" and changed.endswith(".py"):
        yield changed if Path(changed).name.startswith("test_") else str(Path(changed).parent)
    elif changed.startswith(_EVERYWHERE):
        yield "tests/scenarios"
    elif package == "controllers" and inner:
        named = sorted(root.glob(f"tests/scenarios/test_{inner[0]}*.py"))
        yield from (str(path.relative_to(root)) for path in named) if named else ["tests/scenarios"]
    if package in ("controllers", "controller_manager", "apiserver_stub"):
        yield from (str(Path("tests", package, *inner[:depth])) for depth in (1, 2) if len(inner) > depth)


def main() -> None:
    """Print one path a line; nothing if the commit is not known here, as in a shallow clone."""
    command = ("git", "diff", "--name-only", sys.argv[1], "HEAD")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print("\n".join(touched(done.stdout.split())))


if __name__ == "__main__":
    main()
