"""The restart policy of the child processes of a cluster."""

_LONGEST_PAUSE = 30.0  # seconds
_STEADY = 60.0  # seconds after which a process no longer counts as failing in a row
_MOST_IN_A_ROW = 10


class Restarts:
    """The restarts of one process: after 1, 2, 4 … 30 seconds; none after ten failures in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_after(self, status: int, lived: float) -> float | None:
        """Return the seconds until the restart of a process that ended with `status` after `lived` seconds.

        None means no restart: it was stopped (status 0), or failed too often in a row.
        """
        if lived >= _STEADY:
            self._in_a_row = 0
        self._in_a_row += 1
        if status == 0 or self._in_a_row > _MOST_IN_A_ROW:
            return None
        return min(2.0 ** (self._in_a_row - 1), _LONGEST_PAUSE)
