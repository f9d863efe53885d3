"""The Retry-After seconds of rejected requests."""

import pytest

from apiserver_stub.flow_control.retry_after import Rejected, RetryAfter


def retry_after_seconds(rejected: list[int]) -> list[int]:
    """Return the Retry-After seconds at the end of each second with this number of rejected requests."""
    retry_after, found = RetryAfter(), []
    for second, count in enumerate(rejected, start=1000):
        for _ in range(count):
            retry_after.rejected(second + 0.5)
        found.append(retry_after.seconds)
    return found


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        ([1] * 8, [1] * 8),
        ([2, 2, 2, 2], [1, 1, 1, 1]),
        ([3, 3, 3, 3, 3], [1, 2, 2, 4, 4]),
        ([3, 1, 0, 0, 1, 1], [1, 2, 2, 2, 1, 1]),
        ([100] * 40, [1, 2, 2, *[4] * 2, *[4] * 2, *[8] * 8, *[16] * 16, *[32] * 9]),
    ],
)
def test_retry_after_doubles_while_many_are_rejected(rejected: list[int], expected: list[int]) -> None:
    assert retry_after_seconds(rejected)[: len(expected)] == expected


def test_rejected_request_gets_plain_text_response() -> None:
    response = Rejected(4).response()
    assert (response.status, response.body) == (429, b"Too many requests, please try again later.\n")
    assert response.headers == {
        "content-type": "text/plain; charset=utf-8",
        "x-content-type-options": "nosniff",
        "retry-after": "4",
    }
