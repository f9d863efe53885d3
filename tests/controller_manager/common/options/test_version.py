"""The flags of every process: help, the printed version and the reported version."""

import json

import pytest

from controller_manager.common.options.command_line import command_line, reported_version
from controller_manager.common.options.flag import GeneralOptions
from controller_manager.common.options.parse import FlagError, FlagSet

FLAGS = FlagSet()


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        command_line("daemon", "A daemon.", FLAGS, argv)
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.flag("help")
@pytest.mark.parametrize("word", ["-h", "--help", "--help=true", "--help=T"])
def test_help_is_printed(word, capsys):
    assert printed(capsys, word).startswith("A daemon.\n\nUsage: daemon [flags]\n")


def test_help_false_prints_nothing():
    assert command_line("daemon", "A daemon.", FLAGS, ["--help=false"])[GeneralOptions] == GeneralOptions()


@pytest.mark.flag("version")
def test_version_is_printed(capsys):
    ours = reported_version(FLAGS.parse([]))
    assert ours.startswith("v1.36.0+")
    assert printed(capsys, "--version") == printed(capsys, "--version=1") == f"daemon {ours}\n"
    assert json.loads(printed(capsys, "--version=raw"))["gitVersion"] == ours


@pytest.mark.flag("version")
@pytest.mark.parametrize("text", ["v1.36.0", "v1.36.4", "v1.36.0-alpha.1+build-7.x"])
def test_reported_version_can_be_set(text):
    assert reported_version(FLAGS.parse([f"--version={text}"])) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("v1.35.0", "--version: a version to report is of the form v1.36.0 or v1.36.4-rebuilt+2, got 'v1.35.0'"),
        ("v1.36", "--version: a version to report is of the form v1.36.0 or v1.36.4-rebuilt+2, got 'v1.36'"),
        ("v1.36.01", "--version: a version to report is of the form v1.36.0 or v1.36.4-rebuilt+2, got 'v1.36.01'"),
        ("maybe", "--version: a truth value is true or false, got 'maybe'"),
    ],
)
def test_malformed_version_is_refused(text, problem):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse([f"--version={text}"])
    assert caught.value.problems == (problem,)


def test_word_after_version_is_refused():
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(["--version", "raw"])
    assert caught.value.problems == ("unexpected argument 'raw'; write --version=raw",)
