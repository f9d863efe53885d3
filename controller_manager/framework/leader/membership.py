"""The replicas that share locks, as one of them knows them by their leases; pure, the caller passes the time.

Each replica renews one lease, its session. A lock is a lease, too, but is only written when it is taken and when it is
given back: it is worth as much as the session of its holder.

    the lock              its holder's session    assigned to    do
    free                  -                       me             TAKE
    another's             over                    me             TAKE
    another's             lives                   -              -
    mine, not worked on   -                       me             TAKE: it is written anew, so that no write of ours
                                                                 that got no answer can still change it
    mine, not worked on   -                       another        GIVE_BACK
    mine, worked on       -                       another        YIELD
    another's, worked on  -                       -              LOST

A session is over so many seconds after we saw it change, by our own clock; its holder measures from before it sent that
change, and acts for a shorter time. That of a holder whose session was never seen is over so long after we heard of it.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from controller_manager.framework.leader.assignment import assign
from controller_manager.framework.leader.lease import LeaderElectionRecord


class LockAction(Enum):
    """An action about a lock."""

    TAKE = "take"
    GIVE_BACK = "give back"
    YIELD = "yield"
    LOST = "lost"


class Sessions:
    """Who lives, by the records of sessions as they change; `seconds` is how long one lasts that is not seen."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._records: dict[str, LeaderElectionRecord] = {}
        # Until when each identity lives as far as is known; a lock may name one that has no session any more.
        self._until: dict[str, float] = {}

    def observe(self, records: Mapping[str, LeaderElectionRecord], now: float) -> None:
        """Take in the records of all sessions, by the name of their leases, as they were read just now."""
        for name, record in records.items():
            before = self._records.get(name)
            if record == before:
                continue
            if record.holder:
                self._until[record.holder] = now + record.seconds
            elif before is not None:  # who gives its session back has ended
                self._until[before.holder] = 0.0
        self._records = dict(records)

    def is_over(self, identity: str, asked: float) -> bool:
        """Return whether that one can act no more; `asked` is when what was observed last was asked for."""
        return asked >= self._until.setdefault(identity, asked + self._seconds)

    def forget(self, named: Collection[str], asked: float) -> None:
        """Forget those that are over, but for those that are `named` by locks."""
        kept = {record.holder for record in self._records.values()}.union(named)
        self._until = {one: until for one, until in self._until.items() if one in kept or asked < until}

    def free_slot(self, names: Iterator[str], asked: float) -> str:
        """Return the first name of a session that nobody has, or nobody who lives."""
        return next(name for name in names if self._is_free(name, asked))

    def _is_free(self, name: str, asked: float) -> bool:
        record = self._records.get(name)
        return record is None or not record.holder or self.is_over(record.holder, asked)


class Membership:
    """The locks of a group of replicas, who has them, and what `me` should do about it.

    `locks` has the family of each lock, as `assign` wants it; `seconds` is how long a session lasts.
    """

    def __init__(self, me: str, locks: Mapping[str, str], seconds: float) -> None:
        self.me = me
        self.sessions = Sessions(seconds)
        self._locks = locks
        self._seconds = seconds
        # Who had a lock when it was last seen, and until when that counts for a lease that is gone.
        self._holders: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._asked = 0.0
        self.members: tuple[str, ...] = ()
        self._assigned: Mapping[str, str] = {}

    def observe(self, holders: Mapping[str, str], members: Collection[str], asked: float) -> None:
        """Take in the holders of all locks that have a lease (empty for nobody), and the identities that take part, by
        their sessions, which `sessions` was told of; `asked` is when all of that was asked for.

        That a session has not changed is known of that moment and no later one: however long it takes until something
        is done about it, its holder may have renewed it since.
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
        """Return who had a lock when it was last seen; empty for nobody."""
        return self._holders.get(lock, "")

    def is_over(self, identity: str) -> bool:
        """Return whether that one could act no more when all was observed last."""
        return self.sessions.is_over(identity, self._asked)

    def note(self, lock: str, holder: str) -> None:
        """Know who has a lock from its lease as it was just read or written."""
        self._holders[lock] = holder
        self._gone.pop(lock, None)

    def assigned(self, lock: str) -> str:
        """Return who should have a lock; empty if nobody takes part."""
        return self._assigned.get(lock, "")

    def steps(self, working: Collection[str]) -> Iterator[tuple[str, LockAction]]:
        """Yield what to do about which lock, by the table above; `working` are those that `me` works under."""
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
