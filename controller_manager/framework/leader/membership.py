"""The replicas that share locks, as one of them knows them from the leases; pure, the caller passes the time.

Each replica renews one lease, its session. A lock is also a lease, but it is written only when it is taken and
released: it is valid as long as the session of its holder.

    lock                       session of its holder    assigned to    action
    free                       -                        me             TAKE
    of another                 expired                  me             TAKE
    of another                 alive                    -              -
    mine, without work         -                        me             TAKE: write it again, so that no earlier write
                                                                       without a response can still change it
    mine, without work         -                        another        GIVE_BACK
    mine, with work            -                        another        YIELD
    of another, with my work   -                        -              LOST

A session expires a lease duration after we observed its last change, by the local clock. Its holder measures from
before it sent that change, so it stops earlier. The session of a holder that was never observed expires a lease
duration after the holder was first seen on a lock.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from controller_manager.framework.leader.assignment import assign
from controller_manager.framework.leader.lease import LeaderElectionRecord


class LockAction(Enum):
    """An action on a lock."""

    TAKE = "take"
    GIVE_BACK = "give back"
    YIELD = "yield"
    LOST = "lost"


class Sessions:
    """Which identities are alive, by the changes of their sessions. `seconds` is the term of an unobserved session."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._records: dict[str, LeaderElectionRecord] = {}
        # When the session of each identity expires. A lock may name an identity whose session is gone.
        self._until: dict[str, float] = {}

    def observe(self, records: Mapping[str, LeaderElectionRecord], now: float) -> None:
        """Record the just-read records of all sessions, by the name of their leases."""
        for name, record in records.items():
            before = self._records.get(name)
            if record == before:
                continue
            if record.holder:
                self._until[record.holder] = now + record.seconds
            elif before is not None:  # a replica that releases its session has ended
                self._until[before.holder] = 0.0
        self._records = dict(records)

    def is_over(self, identity: str, asked: float) -> bool:
        """Return whether an identity can no longer act; `asked` is when the last observed list was requested."""
        return asked >= self._until.setdefault(identity, asked + self._seconds)

    def forget(self, named: Collection[str], asked: float) -> None:
        """Drop expired identities, except those `named` by locks."""
        kept = {record.holder for record in self._records.values()}.union(named)
        self._until = {one: until for one, until in self._until.items() if one in kept or asked < until}

    def free_slot(self, names: Iterator[str], asked: float) -> str:
        """Return the first session name that has no holder, or an expired one."""
        return next(name for name in names if self._is_free(name, asked))

    def _is_free(self, name: str, asked: float) -> bool:
        record = self._records.get(name)
        return record is None or not record.holder or self.is_over(record.holder, asked)


class Membership:
    """The locks of a group of replicas, their holders, and the actions that the replica `me` should take.

    `locks` has the family of each lock, as for `assign`; `seconds` is the duration of a session.
    """

    def __init__(self, me: str, locks: Mapping[str, str], seconds: float) -> None:
        self.me = me
        self.sessions = Sessions(seconds)
        self._locks = locks
        self._seconds = seconds
        # The last observed holder of each lock, and how long it counts after the lease was deleted.
        self._holders: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._asked = 0.0
        self.members: tuple[str, ...] = ()
        self._assigned: Mapping[str, str] = {}

    def observe(self, holders: Mapping[str, str], members: Collection[str], asked: float) -> None:
        """Record the holders of all locks that have a lease (empty: no holder), and the identities that take part.

        Call `sessions.observe` first. `asked` is when the list was requested. Expiry is judged at that time and not
        later, because a holder may have renewed its session since then.
        """
        self._asked = asked
        for lock in self._locks:
            if lock in holders:
                self._holders[lock] = holders[lock]
                self._gone.pop(lock, None)
            elif self._holders.get(lock) and asked >= self._gone.setdefault(lock, asked + self._seconds):
                self._holders[lock] = ""
        alive = tuple(sorted(one for one in members if not self.sessions.is_over(one, asked)))
        if alive != self.members:
            self.members, self._assigned = alive, assign(self._locks, alive)
        self.sessions.forget(set(self._holders.values()), asked)

    def holder(self, lock: str) -> str:
        """Return the last observed holder of a lock; empty if it has none."""
        return self._holders.get(lock, "")

    def is_over(self, identity: str) -> bool:
        """Return whether an identity could no longer act at the last observation."""
        return self.sessions.is_over(identity, self._asked)

    def note(self, lock: str, holder: str) -> None:
        """Record the holder of a lock whose lease was just read or written."""
        self._holders[lock] = holder
        self._gone.pop(lock, None)

    def assigned(self, lock: str) -> str:
        """Return the replica that a lock is assigned to; empty if no replica takes part."""
        return self._assigned.get(lock, "")

    def steps(self, working: Collection[str]) -> Iterator[tuple[str, LockAction]]:
        """Yield locks with their actions, by the table of the module; `working` are those that `me` works under."""
        for lock in self._locks:
            holder, mine = self.holder(lock), self.assigned(lock) == self.me
            if lock in working:
                if holder != self.me:
                    yield lock, LockAction.LOST
                elif not mine:
                    yield lock, LockAction.YIELD
            elif holder == self.me:
                yield lock, LockAction.TAKE if mine else LockAction.GIVE_BACK
            elif mine and (not holder or self.is_over(holder)):
                yield lock, LockAction.TAKE
