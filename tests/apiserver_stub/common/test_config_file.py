"""Configuration files: parsed strictly, with the field in each error, and reloaded."""

import asyncio
from pathlib import Path

import pytest

from apiserver_stub.common.config_file import (
    ConfigDocument,
    ConfigFileError,
    ConfigModel,
    FileWatcher,
    Seconds,
    parse_config,
    read_config,
    refuse_causes,
)
from controller_manager.common.api.errors import Cause
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing.virtual import run

V1 = "apiserver.config.k8s.io/v1"
HEAD = f"apiVersion: {V1}\nkind: Toys\n"


class Toy(ConfigModel):
    name: str
    timeout: Seconds = Seconds(3)


class Toys(ConfigDocument):
    toys: tuple[Toy, ...] = ()


def parsed(text: str) -> Toys:
    return parse_config(text.encode(), Path("toys.yaml"), "Toys", {V1: Toys})


def test_null_fields_are_read_as_absent() -> None:
    found = parsed(HEAD + "toys:\n- {name: car, timeout: 1m30s}\n- {name: doll, timeout: null}\n")
    assert found.toys == (Toy(name="car", timeout=Seconds(90)), Toy(name="doll"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no Toys"),
        ("[]", "holds no Toys"),
        ("kind: Toys", f"apiVersion: must be one of {V1}"),
        (f"apiVersion: {V1}\nkind: Dolls", "kind: must be Toys"),
        ("apiVersion: v7\nkind: Toys", "apiVersion: must be one of"),
        ("apiVersion: [1]\nkind: Toys", "apiVersion: must be one of"),
        (HEAD + "toys: {}", "toys: Expected `array`"),
        (HEAD + "toys: [{}]", "toys[0]: Object missing required field `name`"),
        (HEAD + "toys: [{name: car}, {name: 3}]", "toys[1].name: Expected `str`"),
        (HEAD + "toys: [{name: car, wheels: 4}]", "toys[0]: Object contains unknown field `wheels`"),
        (HEAD + "wheels: 4", "Object contains unknown field `wheels`"),
        (HEAD + "toys: [{name: car, timeout: 3}]", "toys[0].timeout: a duration is a text"),
        (HEAD + "toys: [{name: car, timeout: soon}]", "toys[0].timeout: a duration is a number with a unit"),
        (HEAD + "kind: Toys", "line 3: a key is there twice"),
        ("\t", "is not valid YAML"),
    ],
)
def test_unusable_config_is_reported(text: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parsed(text)
    assert str(caught.value).startswith("toys.yaml")
    assert said in str(caught.value)


def test_missing_or_too_large_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="can't be read: No such file"):
        read_config(tmp_path / "none", "Toys", {V1: Toys})
    (tmp_path / "large").write_bytes(b" " * (5 << 20))
    with pytest.raises(ConfigFileError, match="larger than 4 MiB"):
        read_config(tmp_path / "large", "Toys", {V1: Toys})


def test_first_ten_problems_are_reported_together() -> None:
    refuse_causes(Path("toys.yaml"), [])
    causes = [Cause(reason="FieldValueRequired", message="Required value", field=f"toys[{at}]") for at in range(12)]
    with pytest.raises(ConfigFileError) as caught:
        refuse_causes(Path("toys.yaml"), causes)
    assert str(caught.value).startswith("toys.yaml: toys[0]: Required value; toys[1]: Required value; ")
    assert str(caught.value).endswith("toys[9]: Required value; and 2 more")


def test_changes_are_applied_and_failures_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "toys.yaml"
    file.write_bytes(b"one")
    applied: list[bytes] = []
    failures: list[str] = []

    async def apply(data: bytes) -> None:
        if data == b"broken":
            raise ConfigFileError("it is broken")
        applied.append(data)

    async def main() -> None:
        watcher = FileWatcher(file, b"one", apply, lambda error: failures.append(str(error)), interval=60)
        async with Tasks() as tasks:
            tasks.start(watcher.run(), name="watcher")
            await asyncio.sleep(61)
            assert applied == []
            for data in (b"two", b"broken", b"broken", b"three"):
                file.write_bytes(data)
                await asyncio.sleep(60)
            file.unlink()
            await asyncio.sleep(180)
            file.write_bytes(b"four")
            await asyncio.sleep(60)
            tasks.cancel()

    run(main())
    assert applied == [b"two", b"three", b"four"]
    assert failures[0] == "it is broken"
    assert len(failures) == 2
    assert "can't be read" in failures[1]
