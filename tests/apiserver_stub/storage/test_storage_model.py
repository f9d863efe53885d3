"""Every storage agrees with a model under any sequence of writes, lists, watches and compactions."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from apiserver_stub.storage.interface import Compare, Record, RevisionConflict, TooOld, Write
from tests.apiserver_stub.storage.storages import KINDS, Follower, body, plain, reopener, stamped_body
from tests.etcd import Etcd


class Model(RuleBasedStateMachine):
    """A storage beside a list of all writes to it."""

    kind: str
    folder: Path
    etcd: Callable[[], Etcd]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.reopen = reopener(self.kind, Path(tempfile.mkdtemp(dir=self.folder)), self.etcd)
        self.written: list[Record] = []
        self.followers: list[Follower] = []
        self.run(self.begin())

    async def begin(self) -> None:
        self.storage = self.reopen()
        await self.storage.open()
        self.first = await self.storage.current_revision()
        self.compacted = await self.storage.oldest_revision()
        self.is_shared = self.kind == "etcd"  # has revisions without our rows, and one per transaction

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @property
    def newest(self) -> int:
        return self.written[-1].revision if self.written else self.first

    def state(self, at: int) -> dict[tuple[str, str], Record]:
        rows: dict[tuple[str, str], Record] = {}
        for record in self.written:
            if record.revision <= at:
                rows.pop((record.resource, record.key), None)
                if not record.deleted:
                    rows[record.resource, record.key] = record
        return rows

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(["pods", "nodes"]), st.sampled_from("abc")), min_size=1, max_size=3, unique=True
        ),
        deletes=st.lists(st.booleans(), min_size=3, max_size=3),
        off=st.sampled_from([0, 0, 0, 0, 1, -1]),
        compared=st.integers(0, 2),
        text=st.text("xyz", max_size=3),
    )
    def write(self, rows: list[tuple[str, str]], deletes: list[bool], off: int, compared: int, text: str) -> None:
        """The last row has a wrong revision if so chosen; some rows behind the first are only compared."""
        current = self.state(self.newest)
        at = {row: current[row].revision if row in current else 0 for row in rows}
        expected = {row: max(0, at[row] + (off if row == rows[-1] else 0)) for row in rows}
        kept = max(1, len(rows) - compared)
        writes = [
            Write(*row, expected[row], body(text), deleted=gone)
            for row, gone in zip(rows[:kept], deletes, strict=False)
        ]
        compares = [Compare(*row, expected[row]) for row in rows[kept:]]
        wrong = [
            one
            for one in (*writes, *compares)
            if one.expected != at[one.resource, one.key]
            or (isinstance(one, Write) and one.deleted and not one.expected)
        ]
        revision = self.run(self.attempt(writes, compares))
        if wrong:
            assert (revision.resource, revision.key) == (wrong[0].resource, wrong[0].key)
            assert revision.current == at[wrong[0].resource, wrong[0].key]
            assert self.is_newest(revision.revision)
            return
        assert revision > self.newest
        numbers = [revision] * len(writes) if self.is_shared else range(revision - len(writes) + 1, revision + 1)
        self.written += [
            Record(number, one.resource, one.key, stamped_body(text, number), one.deleted, 0.0)
            for number, one in zip(numbers, writes, strict=True)
        ]

    def is_newest(self, revision: int) -> bool:
        return revision >= self.newest if self.is_shared else revision == self.newest

    async def attempt(self, writes: list[Write], compares: list[Compare]) -> int | RevisionConflict:
        try:
            return await self.storage.txn(writes, compares)
        except RevisionConflict as conflict:
            return conflict

    @rule(back=st.integers(0, 12), resource=st.sampled_from([None, "pods", "nodes"]))
    def list_rows(self, back: int, resource: str | None) -> None:
        at = max(0, self.newest - back)
        if at < self.compacted:
            with pytest.raises(TooOld):
                self.run(self.storage.list(resource, at))
            return
        found = self.run(self.storage.list(resource, at))
        wanted = {row: record for row, record in self.state(at).items() if resource in (None, row[0])}
        assert found.revision == at
        assert plain(found.records) == [record for _, record in sorted(wanted.items())]

    @rule(back=st.integers(0, 12))
    def watch(self, back: int) -> None:
        after = max(0, self.newest - back)
        follower = Follower(after)
        if after < self.compacted:
            with pytest.raises(TooOld):
                self.run(self.storage.watch(after, follower))
        else:
            self.run(self.storage.watch(after, follower))
            self.followers.append(follower)

    @rule(back=st.integers(-2, 12))
    def compact(self, back: int) -> None:
        revision = self.newest - back

        async def compacted() -> None:
            await self.storage.compact(revision)

        self.run(compacted())
        if self.is_shared:
            oldest = self.run(self.storage.oldest_revision())
            assert oldest >= min(revision, self.newest)
        self.compacted = oldest if self.is_shared else max(self.compacted, min(revision, self.newest))

    @rule()
    def restart(self) -> None:
        self.run(self.storage.close())
        self.followers.clear()
        self.storage = self.reopen()
        self.run(self.storage.open())
        oldest = self.run(self.storage.oldest_revision())
        assert oldest <= self.compacted  # without removals it may exist again
        self.compacted = oldest

    @invariant()
    def rows_and_watches_are_as_written(self) -> None:
        assert self.is_newest(self.run(self.storage.current_revision()))
        for row in self.state(self.newest).values():
            assert plain([self.run(self.storage.get(row.resource, row.key))]) == [row]
        for follower in self.followers:
            if self.is_shared:
                self.run(follower.reach(self.newest))
            assert plain(follower.records) == [one for one in self.written if one.revision > follower.after]
            assert self.is_newest(follower.revision) or follower.revision == follower.after

    def teardown(self) -> None:
        self.run(self.storage.close())
        self.runner.close()


@pytest.mark.parametrize("kind", KINDS)
def test_storage_agrees_with_a_model(kind: str, request: pytest.FixtureRequest) -> None:
    Model.etcd = staticmethod(lambda: request.getfixturevalue("etcd"))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        Model.kind, Model.folder = kind, Path(folder)
        run_state_machine_as_test(
            Model,
            settings=settings(
                max_examples={"memory": 50, "etcd": 5}.get(kind, 20),
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
