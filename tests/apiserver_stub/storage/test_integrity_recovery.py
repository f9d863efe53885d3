"""After any damage to the files of a store, all acknowledged writes exist or the start reports the loss."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from apiserver_stub.storage.integrity import JUMP
from apiserver_stub.storage.interface import Unusable, Write
from apiserver_stub.watch_cache.row import CorruptRow
from tests.apiserver_stub.storage.store_files import BODY, FILES, backend_of, crash, flip, opened, truncate, write


class Recovery(RuleBasedStateMachine):
    """A store that is written to, stopped, killed, damaged and restarted."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.acknowledged: dict[str, int] = {}
        self.highest = 1
        self.path = self.fresh()
        self.store = self.run(opened(self.path, changes=8))

    def fresh(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder)) / "data" / "store.db"

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @rule(key=st.sampled_from("abcdef"), times=st.integers(1, 5))
    def write(self, key: str, times: int) -> None:
        for _ in range(times):
            self.run(write(self.store, key))
            self.acknowledge(key)

    def acknowledge(self, key: str) -> None:
        assert self.store.revision > self.highest
        self.highest = self.store.revision
        row = self.store.get("pods", key)
        assert row is not None
        self.acknowledged[key] = row.revision

    @rule(key=st.sampled_from("abcdef"))
    def delete(self, key: str) -> None:
        if (row := self.store.get("pods", key)) is not None and not isinstance(row, CorruptRow):
            self.run(self.store.commit(Write("pods", key, row.revision, BODY, deleted=True)))
            assert self.store.revision > self.highest
            self.highest = self.store.revision
            del self.acknowledged[key]

    @rule()
    def fold(self) -> None:
        async def folded() -> None:
            await backend_of(self.store)._fold()

        self.run(folded())

    @rule()
    def compact(self) -> None:
        async def compacted() -> None:
            await self.store.storage.compact(self.store.revision)

        self.run(compacted())

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.store = self.run(opened(self.path, changes=8))

    @rule()
    def kill(self) -> None:
        left = crash(self.path, self.fresh().parent)
        self.run(self.store.close())
        self.path = left
        self.store = self.run(opened(left, changes=8))

    @rule(
        end=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7),
        how=st.sampled_from(["flip", "cut", "remove"]), orderly=st.booleans(),
    )  # fmt: skip
    @precondition(lambda self: self.acknowledged)
    def harm(self, end: str, where: float, bit: int, how: str, orderly: bool) -> None:
        """Either all writes exist, or the start fails; then the loss is accepted."""
        left = crash(self.path, self.fresh().parent) if not orderly else None
        self.run(self.store.close())
        self.path = left or self.path
        file = self.path.with_name(self.path.name + end)
        if file.exists() and (size := file.stat().st_size):
            if how == "flip":
                flip(file, int(where * size), bit)
            elif how == "cut":
                truncate(file, int(where * size))
            else:
                file.unlink()
        try:
            self.store = self.run(opened(self.path, changes=8))
        except Unusable as refusal:
            self.give_up(str(refusal))

    def give_up(self, why: str) -> None:
        if "--accept-data-loss" in why:
            try:
                self.store = self.run(opened(self.path, accept=True, changes=8))
            except Unusable:
                self.path.rename(self.path.with_name("broken.db"))
                self.store = self.run(opened(self.path, accept=True, changes=8))
            assert self.store.revision > self.highest + JUMP // 2
        else:  # not a store any more
            self.path = self.fresh()
            self.store = self.run(opened(self.path, changes=8))
            self.highest = 1
        self.acknowledged = {row.key: row.revision for row in self.store.snapshot("pods").items()}

    @invariant()
    def everything_acknowledged_is_there(self) -> None:
        found = {row.key: row.revision for row in self.store.snapshot("pods").items()}
        assert found == self.acknowledged
        assert self.store.revision >= self.highest
        self.highest = max(self.highest, self.store.revision)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()


def test_recovery_after_any_damage() -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        Recovery.folder = Path(folder)
        run_state_machine_as_test(
            Recovery,
            settings=settings(
                max_examples=50, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
