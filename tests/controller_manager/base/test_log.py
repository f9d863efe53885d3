"""The log: what a failure tells, and what it must not."""

import io
from collections.abc import Iterator

import pytest
import structlog

from controller_manager.base.log import configure, get_logger

SECRET = "s3cret" * 3


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def fail(token: str) -> None:
    raise ValueError(f"a token of {len(token)} characters was refused")


@pytest.mark.parametrize("json", [True, False])
def test_a_failure_is_told_without_the_variables_around_it(json: bool) -> None:
    out = io.StringIO()
    configure(json=json, stream=out)
    try:
        fail(SECRET)
    except ValueError:
        get_logger("test").exception("it failed", step="refusal")
    told = out.getvalue()
    assert "a token of 18 characters was refused" in told
    assert "in fail" in told or '"name":"fail"' in told or '"name": "fail"' in told
    assert SECRET not in told


def test_without_a_configuration_debug_lines_stay_out(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    log = get_logger("test")
    log.debug("unheard")
    log.warning("heard")
    told = capsys.readouterr()
    assert ("unheard" in told.err, "heard" in told.err, told.out) == (False, True, "")
