"""The validity of a certificate; pure.

    asked for                       lifetime counted from now, and the end
    nothing                         the maximum
    more than the maximum           the maximum
    less than ten minutes           ten minutes
    else                            what is asked for

Clocks of others may lag behind: every certificate begins five minutes ago. One that lasts eight hours or more ends five
minutes earlier too, so that it does not last longer than it should. None outlives its authority.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

_BACKDATED = timedelta(minutes=5)
_SHORTEST = timedelta(minutes=10)
_LONG = timedelta(hours=8)


class Validity(NamedTuple):
    """Two moments, in whole seconds."""

    start: datetime
    end: datetime


def validity(now: datetime, asked: int | None, maximum: timedelta, authority_end: datetime) -> Validity | None:
    """Return when a certificate signed `now` is valid that is to last `asked` seconds; None if the authority ended."""
    if now >= authority_end:
        return None
    wanted = maximum if asked is None else max(timedelta(seconds=asked), _SHORTEST)
    lifetime = min(wanted, maximum)
    end = now + lifetime - (_BACKDATED if lifetime >= _LONG else timedelta())
    return Validity((now - _BACKDATED).replace(microsecond=0), min(end, authority_end).replace(microsecond=0))
