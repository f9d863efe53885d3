"""Every room of the code has a map, `README.md`, which names only files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 50  # lines: one page
FILE = re.compile(r"`([\w./-]+(?:\.(?:py|json|yaml|txt|md)|/))`")


def folders(parent: str) -> list[Path]:
    return sorted(path.parent for path in (ROOT / parent).glob("*/__init__.py"))


ROOMS = [
    *folders("apiserver_stub"),
    *folders("controller_manager/common"),
    *(path for path in folders("controller_manager") if path.name != "common"),
    ROOT / "controllers/shared",
]
MAPS = [ROOT / "apiserver_stub", ROOT / "controller_manager", ROOT / "controllers"]


def missing_files(room: Path, text: str) -> list[str]:
    """Return the files and folders that the text names and that exist neither below the room nor in a folder above."""
    parents = [parent for parent in room.parents if parent.is_relative_to(ROOT)]
    return [
        name
        for name in FILE.findall(text)
        if next(room.rglob(name), None) is None and not any((parent / name).exists() for parent in parents)
    ]


def unlinked_targets(folder: Path, text: str) -> list[str]:
    return [name for name in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (folder / name).exists()]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_room_has_a_one_page_map_with_entry_exit_and_rules(room: Path) -> None:
    text = (room / "README.md").read_text()
    assert text.startswith(f"# `{room.relative_to(ROOT)}`\n")
    assert len(text.splitlines()) <= LONGEST
    for part in ("| enters | ", "| leaves | ", "| open first | ", "\nRules:\n"):
        assert part in text


@pytest.mark.parametrize("room", ROOMS + MAPS, ids=lambda room: str(room.relative_to(ROOT)))
def test_map_names_only_existing_files(room: Path) -> None:
    text = (room / "README.md").read_text()
    assert missing_files(room, text) == []
    assert unlinked_targets(room, text) == []


def test_absent_file_in_a_map_is_found() -> None:
    assert missing_files(ROOT / "controllers/shared", "`pods.py`, `absent.py`, `absent/`") == ["absent.py", "absent/"]


def test_maps_are_linked_from_parent_map_and_architecture() -> None:
    sources = [*(parent / "README.md" for parent in MAPS), ROOT / "docs/architecture.md"]
    linked = {
        (source, (source.parent / target).resolve())
        for source in sources
        for target in re.findall(r"\]\(([^)#:]+)\)", source.read_text())
    }
    unlinked = [
        f"{source.relative_to(ROOT)}: {room.relative_to(ROOT)}"
        for room in ROOMS
        for source in sources
        if room.is_relative_to(source.parent) or source.parent.name == "docs"
        if (source, room / "README.md") not in linked
    ]
    assert unlinked == []
