"""The rejection of excess requests, and its Retry-After seconds, which increase while many are rejected; pure."""

from collections import deque
from collections.abc import Mapping

from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.wire import Response

_LONGEST = 32
_TEXT = "Too many requests, please try again later."


class Rejected(TooManyRequests):
    """A request that was not executed, since there are too many."""

    def __init__(self, seconds: int) -> None:
        super().__init__(_TEXT)
        self._seconds = seconds

    def response(self) -> Response:
        """Return the response, in plain text as in kube-apiserver."""
        headers: Mapping[str, str] = {
            "content-type": "text/plain; charset=utf-8",
            "x-content-type-options": "nosniff",
            "retry-after": str(self._seconds),
        }
        return Response(self.code, headers, f"{_TEXT}\n".encode())


class RetryAfter:
    """The Retry-After seconds of one priority level.

    They double if three requests per second were rejected during that many seconds, at most once per such period, and
    decrease by one if fewer than one per second were.
    """

    def __init__(self) -> None:
        self.seconds = 1
        self._history: deque[tuple[int, int]] = deque()  # (second, rejected in it), finished seconds
        self._second = 0
        self._rejected = 0
        self._raised = 0

    def rejected(self, now: float) -> int:
        """Count a request rejected at `now` (wall-clock seconds); return the Retry-After seconds."""
        second = int(now)
        if second != self._second:
            self._history.append((self._second, self._rejected))
            while self._history and second - self._history[0][0] > _LONGEST:
                self._history.popleft()
            self._second, self._rejected = second, 0
            self._adjust(second)
        self._rejected += 1
        return self.seconds

    def _adjust(self, second: int) -> None:
        seconds = self.seconds
        lately = sum(count for at, count in self._history if second - at <= seconds)
        if second - self._raised >= seconds and lately >= 3 * seconds:
            self.seconds, self._raised = min(2 * seconds, _LONGEST), second
        elif lately < seconds and seconds > 1:
            self.seconds = seconds - 1
