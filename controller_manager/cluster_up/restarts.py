"""When a child process of a cluster that failed is started again."""

_LONGEST_PAUSE = 30.0  # seconds
_STEADY = 60.0  # seconds after which a process no longer counts as failing in a row
_MOST_IN_A_ROW = 10


class Restarts:
    """The restarts of one process: after 1, 2, 4 … 30 seconds, and not at all after ten failures in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_after(self, status: int, lived: float) -> float | None:
        """Return the seconds until the next start of a process that ended with `status` after `lived` seconds; None to
        leave it ended, since somebody stopped it (status 0) or it fails again and again.
        """
        if lived >= _STEADY:
            self._in_a_row = 0
        self._in_a_row += 1
        if status == 0 or self._in_a_row > _MOST_IN_A_ROW:
            return None
        return min(2.0 ** (self._in_a_row - 1), _LONGEST_PAUSE)
