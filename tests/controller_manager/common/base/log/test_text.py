"""Log lines in klog format."""

import logging
import os
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.resource import Key
from controller_manager.common.base.log.formats import Line, as_text, quote

HEADER = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} {1,7}\d+ [\w.]+:\d+\] ")


def line(**more):
    given = {"severity": "I", "time": 1763664484.123456, "file": "/a/b/manager.py", "number": 123, "message": "said"}
    return Line(**{**given, **more})


def test_header_has_severity_local_time_process_and_place():
    local = time.strftime("%m%d %H:%M:%S", time.localtime(1763664484))
    expected = f'I{local}.123456 {os.getpid():>7} manager.py:123] "said"\n'
    assert as_text(line()) == expected
    assert len(expected.split(" manager.py")[0]) == len("I1120 18:48:04.123456 1234567")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", '="plain"'),
        ("", '=""'),
        ('say "so"\\', r'="say \"so\"\\"'),
        ("tab\t bell\a \x1b[31m \u202e \U000e0001 é 漢", r'="tab\t bell\a \x1b[31m \u202e \U000e0001 é 漢"'),
        (3, "=3"),
        (0.5, "=0.5"),
        (True, "=true"),
        (None, "=null"),
        (("a", 'b"'), r'=["a","b\""]'),
        ({"a": ValueError("why")}, '={"a":"ValueError: why"}'),
        (Key("ns", "name"), '="ns/name"'),
        (ValueError("no\nway"), r'="ValueError: no\nway"'),
        (KeyError("html"), "=\"KeyError: 'html'\""),
        (ExceptionGroup("several", [KeyError("html"), OSError()]), "=\"KeyError: 'html'\""),
        (TimeoutError(), '="TimeoutError"'),
        ("one\ntwo\r\n", "=<\n\tone\n\ttwo\\x0d\n >"),
    ],
)
def test_values_are_written_like_klog(value, shown):
    assert as_text(line(fields={"key": value})).endswith(f'] "said" key{shown}\n')


def test_fields_follow_error_and_logger_before_traceback():
    whole = line(severity="E", error="why", logger="gc", fields={"a": 1, "b": "x"}, trace="Traceback:\n  here")
    assert as_text(whole).partition("] ")[2] == (
        '"said" err="why" logger="gc" a=1 b="x" stacktrace=<\n\tTraceback:\n\t  here\n >\n'
    )


def test_verbatim_message_is_not_quoted():
    assert as_text(line(message='FLAG: --v="1"', verbatim=True)).endswith('] FLAG: --v="1"\n')


@given(st.text(), st.text())
def test_message_cannot_start_a_new_log_line(message, value):
    """Otherwise a message could forge log lines."""
    first, *more = as_text(line(message=message, fields={"key": value}, trace=value)).rstrip("\n").split("\n")
    assert HEADER.match(first)
    assert all(one.startswith(("\t", " >")) for one in more)
    assert "\r" not in first + "".join(more)


@given(st.text())
def test_quoted_text_round_trips(text):
    inner = quote(text)[1:-1]
    assert inner.isprintable()
    assert inner.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


def test_line_contains_file_and_line_of_caller(begin):
    out, log = begin()
    log.bind(key="ns/a").warning("failed", error="why", exc_info=None)
    here = test_line_contains_file_and_line_of_caller.__code__.co_firstlineno + 2
    assert re.fullmatch(rf'W.* test_text.py:{here}\] "failed" err="why" logger="test" key="ns/a"\n', out.getvalue())


@pytest.mark.parametrize(
    ("method", "severity"), [("info", "I"), ("warning", "W"), ("error", "E"), ("critical", "F"), ("exception", "E")]
)
def test_severity_of_each_method(begin, method, severity):
    out, log = begin()
    getattr(log, method)("said")
    assert out.getvalue()[0] == severity


def test_warnings_of_other_libraries_have_the_same_form(begin):
    out, _ = begin()
    try:
        raise OSError("gone")
    except OSError:
        logging.getLogger("aiohttp.server").exception("Error handling %s", "a\nrequest")
    logging.getLogger("aiohttp").info("unheard")
    logging.getLogger("asyncio").warning("slow")
    first, *trace, last = out.getvalue().splitlines()
    assert re.match(
        HEADER.pattern + r'"Error handling a\\nrequest" err="OSError: gone" logger="aiohttp.server" stack', first
    )
    assert trace[-2:] == ["\tOSError: gone", " >"]
    assert re.fullmatch(r'W.*"slow" logger="asyncio"', last)


def test_process_name_is_shown_without_configuration_only(begin, capsys):
    import structlog

    from controller_manager.common.base.runtime import Runtime

    out, _ = begin()
    Runtime("one").log("test").info("said")
    structlog.reset_defaults()
    Runtime("one").log("test").info("said")
    assert out.getvalue().endswith('"said" logger="test"\n')
    assert capsys.readouterr().err.endswith('"said" logger="test" process="one"\n')
