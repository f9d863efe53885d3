"""Log levels, JSON lines and masking of secrets."""

import json

import pytest
import structlog

from controller_manager.common.api.resource import Key
from controller_manager.common.base.log import Levels, get_logger
from controller_manager.common.base.log.formats import without_secrets

SECRET = "s3cret" * 3


def fail(token: str) -> None:
    raise ValueError(f"a token of {len(token)} characters was refused")


@pytest.mark.parametrize("as_json", [True, False])
def test_logged_traceback_contains_no_variables(begin, as_json: bool) -> None:
    out, log = begin(json=as_json)
    try:
        fail(SECRET)
    except ValueError:
        log.exception("it failed", step="refusal")
    output = out.getvalue()
    assert "a token of 18 characters was refused" in output
    assert "in fail" in output
    assert SECRET not in output


def test_unconfigured_log_omits_debug_lines(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    log = get_logger("test")
    log.debug("unheard")
    log.warning("heard")
    output = capsys.readouterr()
    assert ("unheard" in output.err, "heard" in output.err, output.out) == (False, True, "")


def test_json_line_has_upstream_keys(begin):
    out, log = begin(json=True, levels=Levels(6))
    log.info("said", port=1)
    log.debug("asked", v=6, error="why")
    log.warning("odd")
    log.error("failed", error=TimeoutError(), names=("a", "b"), key=Key("ns", "a"))
    output = [json.loads(line) for line in out.getvalue().splitlines()]
    for one in output:
        assert one.pop("ts") > 1.7e12
        assert one.pop("caller").startswith("log/test_log.py:")
        assert one.pop("logger") == "test"
    assert output == [
        {"msg": "said", "v": 0, "port": 1},
        {"msg": "asked", "v": 6, "err": "why"},
        {"msg": "odd", "severity": "warning"},
        {"msg": "failed", "names": ["a", "b"], "key": "ns/a", "err": "TimeoutError"},
    ]
    assert list(json.loads(out.getvalue().splitlines()[0])) == ["ts", "logger", "caller", "msg", "v", "port"]


def test_levels_filter_debug_lines(begin):
    out, log = begin(levels=Levels(5))
    log.debug("four")
    log.debug("five", v=5)
    log.debug("six", v=6)
    assert [word in out.getvalue() for word in ("four", "five", "six")] == [True, True, False]
    assert [log.shows(5), log.shows(6)] == [True, False]


@pytest.mark.parametrize(
    ("patterns", "level"),
    [
        ((), 0),
        ((("loop", 5),), 5),
        ((("loo", 5),), 0),
        ((("loop.py", 5),), 0),
        ((("l*", 5),), 5),
        ((("l??p", 5),), 5),
        ((("l?p", 5),), 0),
        ((("work/loop", 5),), 5),
        ((("work/*", 5),), 5),
        ((("wor/*", 5),), 0),
        ((("controller_manager/*/loop", 5),), 5),
        ((("controller_manager/*", 5),), 0),
        ((("/opt/controller_manager/work/loop", 5),), 5),
        ((("/controller_manager/work/loop", 5),), 0),
        ((("queue", 9), ("loop", 3), ("*", 7)), 3),
    ],
)
def test_level_of_file_by_pattern(patterns, level):
    file = "/opt/controller_manager/work/loop.py"
    one = Levels(2, patterns)
    assert [one.shows(number, file) for number in (2, 3, 4, 5, 6)] == [True, *(level >= n for n in (3, 4, 5, 6))]


def test_file_pattern_raises_level(begin):
    out, log = begin(levels=Levels(0, (("test_lo?", 4),)))
    log.debug("heard")
    log.debug("unheard", v=5)
    assert ("heard" in out.getvalue(), "unheard" in out.getvalue()) == (True, False)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("Authorization: Bearer abc.def-ghi_j=", "Authorization: Bearer <masked>"),
        ("basic dXNlcjpwYXNz, more", "basic <masked>, more"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl!", "token <masked>!"),
        ("proxy http://user:pass@host:1/path", "proxy http://<masked>@host:1/path"),
        ("url https://host/path@x", "url https://host/path@x"),
        (
            "x -----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY----- y",
            "x -----BEGIN EC PRIVATE KEY-----<masked>-----END EC PRIVATE KEY----- y",
        ),
        ("the basic idea of a bearer", "the basic idea of a bearer"),
    ],
)
def test_secrets_are_masked(text, output):
    assert without_secrets(text) == output


def test_secrets_in_fields_are_masked(begin):
    for as_json in (True, False):
        out, log = begin(json=as_json)
        log.warning("refused", header=f"Bearer {SECRET}", proxies=[f"http://me:{SECRET}@proxy"])
        assert SECRET not in out.getvalue()
        assert out.getvalue().count("<masked>") == 2
