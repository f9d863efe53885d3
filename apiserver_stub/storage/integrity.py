"""Decide whether a log still has everything that was acknowledged, from what is observed; pure."""

from dataclasses import dataclass, field

from apiserver_stub.storage.checksum import Tally
from apiserver_stub.storage.witness import Acknowledged

JUMP = 1_000_000_000
"""By how much revisions jump when some may have been given out that nobody remembers, as etcd recommends it."""
_NONE = Tally()
_NAMED = 3  # damaged records that are named


@dataclass(slots=True)
class Observed:
    """The facts that a start finds.

    `said` is what the witness says (None: nothing, `unreadable`: nothing that can be read). Of the database: whether
    it `exists`, whether a write-ahead log lies there without it (`orphan`), its `store`, its `epoch`, whether what it
    says of itself is damaged (`stateless`), the newest `revision` known to it, the records that are `present` up to
    the acknowledged revision or were `removed` by compaction, and the `damaged` ones, in words.
    """

    said: Acknowledged | None = None
    unreadable: bool = False
    exists: bool = False
    orphan: bool = False
    store: bytes = b""
    epoch: int = 0
    stateless: bool = False
    revision: int = 0
    present: Tally = _NONE
    removed: Tally = _NONE
    damaged: list[str] = field(default_factory=list)
    boot: str = ""


def losses(seen: Observed) -> list[str]:
    """Return what of the acknowledged writes is lost or cannot be vouched for, in words; nothing if all is there.

    | witness | database | lost |
    |--|--|--|
    | silent | absent, or never used | nothing |
    | silent | used before, or a write-ahead log alone | unknown |
    | speaks | absent | everything |
    | speaks | of another store | unknown |
    | speaks of a later epoch or revision | | the end of the log |
    | speaks of other records up to there | | some records |
    | | says nothing sound of itself, has damaged records | those |
    """
    found = _beside(seen) or (_end(seen) + _middle(seen) if seen.said else [])
    if seen.stateless:
        found.append("what it says of its own history is damaged")
    if seen.damaged:
        more = f" and {len(seen.damaged) - _NAMED} more" if len(seen.damaged) > _NAMED else ""
        found.append(f"damaged: {', '.join(seen.damaged[:_NAMED])}{more}")
    return found


def _beside(seen: Observed) -> list[str]:
    """Return what is wrong with the files as such; then nothing more can be said."""
    said = seen.said
    if not seen.exists and said is not None and said.revision:
        return [f"the database is missing, and with it everything up to revision {said.revision}"]
    if not seen.exists and seen.orphan:
        return ["the database is missing, only its write-ahead log is there"]
    if seen.unreadable:
        return ["the witness beside it, which says how far writes were acknowledged, is damaged"]
    if said is None and seen.exists and (seen.epoch or seen.stateless):
        return ["the witness beside it, which says how far writes were acknowledged, is missing"]
    if said is not None and seen.exists and not seen.stateless and said.store != seen.store:
        return ["the witness beside it is of another store"]
    return []


def _end(seen: Observed) -> list[str]:
    said = seen.said
    assert said is not None
    if seen.revision < said.revision:
        why = "its write-ahead log is missing or damaged, or it is an older copy"
        return [f"revisions {seen.revision + 1} to {said.revision} are gone ({why})"]
    if seen.exists and seen.epoch < said.epoch and not seen.stateless:
        return ["its write-ahead log is missing, and with it what was written last"]
    return []


def _middle(seen: Observed) -> list[str]:
    said = seen.said
    assert said is not None
    if seen.revision < said.revision or seen.stateless:
        return []  # they differ anyway
    found = seen.present.joined(seen.removed)
    if found == said.written:
        return []
    missing = said.written.records - found.records - len(seen.damaged)
    if missing > 0:
        what = "1 record" if missing == 1 else f"{missing} records"
        return [f"{what} up to revision {said.revision} missing"]
    return [] if seen.damaged else [f"records up to revision {said.revision} are not those that were written"]


def in_doubt(seen: Observed) -> bool:
    """Return whether the last moments before the machine itself went down may be unknown: what the witness said then
    may not have reached the disk.
    """
    return seen.said is not None and not seen.said.closed and seen.said.boot != seen.boot
