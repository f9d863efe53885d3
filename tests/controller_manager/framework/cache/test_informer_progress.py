"""Waiting for a resource version."""

from controller_manager.framework.cache.change import Progress


def test_versions_compare_as_numbers() -> None:
    progress = Progress()
    assert not progress.reached("1")
    progress.advance("100")
    assert progress.reached("99")
    assert progress.reached("100")
    assert not progress.reached("101")


def test_callbacks_run_once_when_version_is_reached() -> None:
    progress, called = Progress(), []
    progress.advance("9")
    for version in ("12", "10", "9", "11"):
        progress.when_reached(version, lambda version=version: called.append(version))
    assert called == ["9"]
    progress.advance("11")
    assert called == ["9", "10", "11"]
    progress.advance("50")
    progress.advance("60")
    assert called == ["9", "10", "11", "12"]


def test_opaque_versions_compare_for_equality() -> None:
    progress, called = Progress(), []
    progress.when_reached("abc", lambda: called.append("abc"))
    progress.advance("abd")
    assert not progress.reached("abc")
    progress.advance("abc")
    assert progress.reached("abc")
    assert called == ["abc"]


def test_callbacks_for_opaque_versions_are_bounded() -> None:
    progress, called = Progress(), []
    for number in range(5000):
        progress.when_reached(f"v{number}", lambda number=number: called.append(number))
    for number in (0, 4000, 4999):
        progress.advance(f"v{number}")
    assert called == [4000, 4999]
