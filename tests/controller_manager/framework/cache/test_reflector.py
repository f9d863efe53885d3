"""The next request of a reflector in every state."""

import pytest

from controller_manager.common.api import errors
from controller_manager.framework.cache.reflector import (
    LONGEST_PAUSE,
    PAGE,
    List,
    Pause,
    Reflector,
    StreamingList,
    WatchFrom,
)


def reflector() -> Reflector:
    return Reflector(lambda low, high: high)


def without_streams() -> Reflector:
    found = reflector()
    found.step(0.0)
    found.refused(errors.Invalid("sendInitialEvents is forbidden"))
    return found


def watching(revision: str = "7") -> Reflector:
    found = reflector()
    assert isinstance(found.step(0.0), StreamingList)
    found.listed(revision)
    return found


def test_without_streams_reflector_lists() -> None:
    assert Reflector(lambda low, high: high, streams=False).step(0.0) == List(PAGE)


def test_streaming_list_continues_as_watch() -> None:
    found = watching("7")
    found.note_revision("9")
    found.ended(400.0)
    assert found.step(400.0) == WatchFrom("9", 600.0)


@pytest.mark.parametrize("refusal", [errors.Invalid, errors.BadRequest, errors.MethodNotAllowed])
def test_refused_streaming_list_falls_back_to_pages(refusal: type[errors.ApiError]) -> None:
    found = reflector()
    found.step(0.0)
    found.refused(refusal("no"))
    assert found.step(0.0) == List(PAGE)
    found.listed("7")
    assert found.step(0.0) == WatchFrom("7", 600.0)
    found.refused(errors.Expired("old"))
    assert found.step(1.0) == List(PAGE), "a refused stream is not requested again"


def test_failed_streaming_list_falls_back_to_one_list() -> None:
    found = reflector()
    found.step(0.0)
    found.opened(0.0)
    found.refused(errors.InternalError("the storage does not report its progress"))
    assert found.step(0.0) == List(PAGE)
    assert not found.is_failing
    found.refused(errors.InternalError("no list either"))
    assert isinstance(found.step(0.0), Pause)
    assert found.step(1.0) == List(PAGE)
    found.listed("7")
    assert found.step(1.0) == WatchFrom("7", 600.0)
    found.note_revision("8")
    found.refused(errors.Expired("old"))
    assert isinstance(found.step(9.0), StreamingList), "the next list is requested as a stream again"


def test_unaccepted_streaming_list_is_retried() -> None:
    found = reflector()
    found.step(0.0)
    found.refused(errors.InternalError("busy"))
    assert isinstance(found.step(0.0), Pause)
    assert isinstance(found.step(1.0), StreamingList)


@pytest.mark.parametrize("how", ["ended", "silent"])
def test_incomplete_streaming_list_falls_back_to_list(how: str) -> None:
    found = reflector()
    found.step(0.0)
    if how == "ended":
        found.ended(500.0)
    else:
        found.silent()
        assert isinstance(found.step(30.0), Pause)
    assert found.step(500.0) == List(PAGE)


def test_expired_continue_token_reads_whole_list() -> None:
    found = without_streams()
    assert found.step(0.0) == List(PAGE)
    found.refused(errors.Expired("continue token"))
    assert found.step(0.0) == List(0)
    found.listed("7")
    found.step(0.0)
    found.refused(errors.Expired("old"))
    assert found.step(0.0) == List(PAGE)


@pytest.mark.parametrize(
    "gone", [errors.Expired("old"), errors.Gone("old"), errors.Timeout("Too large resource version: 9")]
)
def test_expired_revision_relists_at_once(gone: errors.ApiError) -> None:
    found = watching()
    found.step(0.0)
    found.refused(gone)
    assert isinstance(found.step(1.0), StreamingList)


def test_repeated_expiry_without_progress_backs_off() -> None:
    found = watching()
    for expected in (StreamingList, Pause, StreamingList, Pause):
        if found.revision:
            found.refused(errors.Expired("old"))
        step = found.step(1.0)
        assert isinstance(step, expected)
        if isinstance(step, StreamingList):
            found.listed("8")
    found.step(1.0)
    found.listed("9")
    found.note_revision("10")
    found.refused(errors.Expired("old"))
    assert isinstance(found.step(2.0), StreamingList)


def test_backoff_doubles_to_bound_and_resets_on_progress() -> None:
    found = watching()
    pauses = []
    for _ in range(8):
        found.disconnected("refused")
        step = found.step(0.0)
        assert isinstance(step, Pause)
        pauses.append(step.seconds)
        assert found.step(0.0) == WatchFrom("7", 600.0)
    assert pauses == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, LONGEST_PAUSE, LONGEST_PAUSE])
    found.note_revision("8")
    found.disconnected("refused")
    assert found.step(0.0) == Pause(0.8, 1)


def test_listing_alone_does_not_reset_backoff() -> None:
    """Otherwise a collection that can be listed but not watched would be listed without a pause."""
    found = without_streams()
    steps = []
    for _ in range(12):
        step = found.step(0.0)
        steps.append(step)
        if isinstance(step, List):
            found.listed("7")
        elif isinstance(step, WatchFrom):
            found.refused(errors.BadRequest("no watching"))
    pauses = [step.seconds for step in steps if isinstance(step, Pause)]
    assert pauses == sorted(pauses)
    assert len(set(pauses)) == len(pauses)


@pytest.mark.parametrize(
    "refusal", [errors.Forbidden, errors.Unauthorized, errors.TooManyRequests, errors.ServiceUnavailable]
)
def test_temporary_refusal_keeps_revision(refusal: type[errors.ApiError]) -> None:
    found = watching()
    found.step(0.0)
    found.refused(refusal("not now"))
    assert isinstance(found.step(0.0), Pause)
    assert found.step(1.0) == WatchFrom("7", 600.0)


def test_silent_watch_resumes_at_once() -> None:
    found = watching()
    found.step(0.0)
    found.silent()
    assert found.step(150.0) == WatchFrom("7", 600.0)


def test_watch_ending_at_once_is_a_failure() -> None:
    found = watching()
    found.ended(400.0)
    found.step(400.0)
    found.ended(400.1)
    assert isinstance(found.step(400.1), Pause)
    found.step(401.0)
    found.ended(800.0)
    assert isinstance(found.step(800.0), WatchFrom)


def test_reflector_is_late_until_a_watch_lasts() -> None:
    found = reflector()
    assert found.late(0.0) == 0.0
    found.step(1.0)
    found.opened(1.1)
    assert found.late(3.0) == 2.0, "the cache is not synced yet"
    found.listed("7")
    assert found.late(3.0) is None
    found.disconnected("gone")
    assert isinstance(found.step(10.0), Pause)
    assert isinstance(found.step(11.0), WatchFrom)
    assert found.late(15.0) == 5.0
    found.disconnected("gone")
    found.step(15.0)
    found.step(16.0)
    found.opened(20.0)
    assert found.late(20.5) == 10.5
    assert found.late(21.0) is None
    found.disconnected("gone")
    found.step(30.0)
    assert found.late(31.0) == 1.0


@pytest.mark.parametrize("how", ["note_revision", "listed", "ended"])
def test_progress_ends_lateness(how: str) -> None:
    found = watching()
    found.disconnected("gone")
    found.step(0.0)
    found.step(1.0)
    found.opened(1.1)
    assert found.late(2.0) == 2.0
    if how == "ended":
        found.ended(300.0)
    else:
        getattr(found, how)("9")
    found.step(300.0)
    assert found.late(300.0) is None


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_silent_or_expired_watch_is_late(how: str) -> None:
    found = watching()
    found.opened(0.1)
    if how == "silent":
        found.silent()
    else:
        found.refused(errors.Expired("old"))
    found.step(150.0)
    assert found.late(151.0) == 1.0
