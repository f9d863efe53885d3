"""Failing keys: order, bounds, and errors that a retry cannot fix."""

import pytest

from controller_manager.common.api import errors
from controller_manager.framework import TransportError
from controller_manager.framework.work.failures import Failures, is_defect


@pytest.mark.parametrize(
    ("error", "failures", "expected"),
    [
        (KeyError("html"), 1, True),
        (errors.Invalid("no"), 1, True),
        (errors.BadRequest("no"), 1, True),
        (errors.NotFound("no"), 1, False),
        (errors.NotFound("no"), 9, False),
        (errors.NotFound("no"), 10, True),
        (errors.Forbidden("no"), 10, True),
        (errors.AlreadyExists("no"), 10, True),
        (errors.Conflict("no"), 1000, False),
        (errors.TooManyRequests("no"), 1000, False),
        (errors.InternalError("no"), 1000, False),
        (errors.ServiceUnavailable("no"), 1000, False),
        (TransportError("no"), 1000, False),
        (TimeoutError(), 1000, False),
        (RuntimeError("not ready yet"), 9, False),
        (RuntimeError("not ready yet"), 10, True),
        (TypeError("no"), 1, True),
    ],
)
def test_defects_by_error_and_failure_count(error: Exception, failures: int, expected: bool) -> None:
    assert is_defect(error, failures) is expected


def test_failing_keys_are_listed_until_success() -> None:
    failures: Failures[str] = Failures()
    failures.note("a", errors.NotFound("gone"), 1.0, ("pods a updated",), 5.0)
    failures.note("a", errors.NotFound("gone"), 2.0, ("error",), 10.0)
    failures.note("b", KeyError("html"), 3.0, retry_in=1.0)
    failures.note("c", ValueError("enough"), 3.0)
    failing = [
        (one.key, one.error, one.seconds, one.failures, one.given_up, one.defect) for one in failures.state(5.0, 9)
    ]
    assert failing == [
        ("b", "KeyError: 'html'", 2.0, 1, False, True),
        ("a", "NotFound: gone", 3.0, 2, False, False),
        ("c", "ValueError: enough", 2.0, 1, True, False),
    ]
    again = {one.key: (one.causes, one.retry_seconds) for one in failures.state(5.0, 9)}
    assert again == {"a": (("pods a updated",), 7.0), "b": ((), 0.0), "c": ((), None)}
    failures.forget("b")
    failures.forget("never heard of")
    assert [one.key for one in failures.state(5.0, 1)] == ["a"]
    assert len(failures) == 2


def test_consecutive_failures_reset_on_success() -> None:
    failures: Failures[str] = Failures()
    for key in ("a", "b", "a"):
        failures.note(key, errors.NotFound("gone"), 1.0, retry_in=1.0)
    failures.note("c", ValueError("enough"), 3.0)
    assert failures.in_a_row == 3
    failures.forget("d")
    assert failures.in_a_row == 0


def test_number_of_failing_keys_is_bounded() -> None:
    failures: Failures[int] = Failures()
    for key in range(1500):
        failures.note(key, KeyError(key), 0.0, retry_in=1.0)
    assert len(failures) == 1000
    assert {one.key for one in failures.state(0.0, 2000)} == {str(key) for key in range(500, 1500)}


def test_eviction_prefers_keys_retried_soonest() -> None:
    failures: Failures[str] = Failures()
    failures.note("given up", ValueError("no"), 0.0)
    failures.note("defect", KeyError("no"), 0.0, retry_in=1.0)
    for number in range(2000):
        failures.note(f"passing {number}", errors.ServiceUnavailable("no"), 0.0, retry_in=5.0)
    kept = {one.key for one in failures.state(0.0, 2000)}
    assert {"given up", "defect"} <= kept
    assert "passing 1999" in kept
    for number in range(2000):
        failures.note(f"defect {number}", KeyError("no"), 0.0, retry_in=1.0)
    kept = {one.key for one in failures.state(0.0, 2000)}
    assert "given up" in kept
    assert sum(one.startswith("defect") for one in kept) == 999


def test_evicted_keys_count_as_failing_until_retried() -> None:
    failures: Failures[int] = Failures()
    for key in range(1001):
        failures.note(key, errors.ServiceUnavailable("no"), 0.0, retry_in=5.0 + key)
    for key in range(1001):
        failures.forget(key)
    assert len(failures) == 0
    assert (failures.is_incomplete(4.9), failures.is_incomplete(5.0)) == (True, False)
    for key in range(1001):
        failures.note(key, ValueError("no"), 10.0)
    assert failures.is_incomplete(1e9), "terminal failures are not retried"
