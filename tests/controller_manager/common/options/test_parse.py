"""The command line: pflag's grammar, all problems at once, defaults, rules across fields, help."""

import contextlib
from collections.abc import Iterator
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import model_validator

from controller_manager.common.options.command_line import command_line, help_text
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import FlagError, FlagSet, Parsed
from controller_manager.common.options.types import Duration, StringList, StringMap


class LeaseOptions(Options):
    elect: bool = flag(True, "gain leadership before acting", name="leader-elect")
    duration: Duration = flag("15s", "wait of a standby", name="lease-duration", minimum=1)
    deadline: Duration = flag(10.0, "longest time without a renewal", name="renew-deadline")

    @model_validator(mode="after")
    def _deadline_before_duration(self) -> Self:
        if self.deadline >= self.duration:
            raise ValueError("--renew-deadline must be less than --lease-duration")
        return self


class MainOptions(Options):
    clusterconfig: str = flag("", "client configuration file", aliases=("kubeconfig",), metavar="file")
    controllers: StringList = flag(("*",), "which controllers run")
    labels: StringMap = flag({}, "labels to add")
    v: int = flag(0, "verbosity of the log", short="v", minimum=0)
    quiet: bool = flag(False, "say less", short="q")
    mode: str = flag("fast", "how to run", choices=("fast", "safe"))
    mask: int | None = flag(None, "mask size")
    old_thing: bool = flag(False, "keep the cloud tidy", inert="needs a cloud")


FLAGS = FlagSet(LeaseOptions, MainOptions)


def main_of(*argv: str) -> MainOptions:
    return FLAGS.parse(argv)[MainOptions]


def problems_of(*argv: str) -> tuple[str, ...]:
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    return caught.value.problems


def test_without_flags_defaults_apply():
    parsed = FLAGS.parse([])
    assert parsed[LeaseOptions] == LeaseOptions()
    assert parsed[LeaseOptions].duration == 15.0
    assert parsed[MainOptions] == MainOptions(controllers=("*",), mask=None)


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--clusterconfig=a"], "clusterconfig", "a"),
        (["--clusterconfig", "a"], "clusterconfig", "a"),
        (["--clusterconfig", "-x"], "clusterconfig", "-x"),
        (["--clusterconfig="], "clusterconfig", ""),
        (["--clusterconfig=a=b"], "clusterconfig", "a=b"),
        (["--kubeconfig=k"], "clusterconfig", "k"),
        (["--old_thing"], "old_thing", True),
        (["--old-thing=false"], "old_thing", False),
        (["--controllers=a,b", "--controllers", "-c"], "controllers", ("a", "b", "-c")),
        (["--labels=a=1,b=2", "--labels=b=3"], "labels", {"a": "1", "b": "3"}),
        (["-v2"], "v", 2),
        (["-v=3"], "v", 3),
        (["-v", "4"], "v", 4),
        (["--v=5"], "v", 5),
        (["-q"], "quiet", True),
        (["-qv6"], "v", 6),
        (["-q=false"], "quiet", False),
        (["--mode=fast", "--mode=safe"], "mode", "safe"),
        (["--mask=24"], "mask", 24),
        (["--quiet", "--"], "quiet", True),
        (["--quiet=F"], "quiet", False),
        (["--labels", "a=1", "--labels", "b=2"], "labels", {"a": "1", "b": "2"}),
    ],
)
def test_flag_grammar(argv, field, value):
    assert getattr(main_of(*argv), field) == value


def test_all_problems_are_reported_at_once():
    assert problems_of("--kubeconfg=x", "-z", "--v=-1", "--mode=slow", "--lease-duration=soon", "stray", "--mask") == (
        "--kubeconfg is not a flag; did you mean --kubeconfig?",
        "-z is not a flag",
        "--v: must be at least 0, got '-1'",
        "--mode: must be fast or safe, got 'slow'",
        "--lease-duration: a duration is a number with a unit, like 300ms, 1.5h or 2h45m, got 'soon'",
        "unexpected argument 'stray'",
        "--mask needs a value of type int",
    )


def test_problems_of_rules_are_reported_with_others():
    assert problems_of("--renew-deadline=20s", "--v=x") == (
        "--v: not a whole number, got 'x'",
        "--renew-deadline must be less than --lease-duration",
    )


def test_rule_is_skipped_for_group_with_refused_flag():
    assert problems_of("--renew-deadline=20s", "--lease-duration=0s") == (
        "--lease-duration: must be at least 1s, got '0s'",
    )


def test_boolean_after_a_space_is_explained():
    assert problems_of("--leader-elect", "false") == ("unexpected argument 'false'; write --leader-elect=false",)


def test_word_after_unknown_flag_is_its_value():
    assert problems_of("--nonsense-at-all", "x") == ("--nonsense-at-all is not a flag",)


def test_arguments_after_double_dash_are_refused():
    assert problems_of("--", "--v=1") == ("unexpected argument '--v=1'",)


def quiet_needs_the_lead(parsed: Parsed) -> Iterator[str]:
    if parsed[MainOptions].quiet and not parsed[LeaseOptions].elect:
        yield "--quiet needs --leader-elect"
    if parsed[MainOptions].mode == "safe" and parsed[LeaseOptions].duration < 5:
        yield "--mode=safe needs a --lease-duration of 5s"


@pytest.mark.parametrize(
    ("argv", "problems"),
    [
        (["-q", "--leader-elect=false"], ("--quiet needs --leader-elect",)),
        (
            ["-q", "--leader-elect=false", "--mode=safe", "--lease-duration=4s", "--renew-deadline=3s", "stray"],
            (
                "unexpected argument 'stray'",
                "--quiet needs --leader-elect",
                "--mode=safe needs a --lease-duration of 5s",
            ),
        ),
        (["-q", "--leader-elect=no"], ("--leader-elect: a truth value is true or false, got 'no'",)),
        (["-q", "--lease-duration=2s"], ("--renew-deadline must be less than --lease-duration",)),
    ],
)
def test_rule_between_groups_runs_once_its_groups_are_valid(argv, problems):
    with pytest.raises(FlagError) as caught:
        FlagSet(LeaseOptions, MainOptions, checks=(quiet_needs_the_lead,)).parse(argv)
    assert caught.value.problems == problems


def test_rule_on_undeclared_group_raises_key_error():
    with pytest.raises(KeyError):
        FlagSet(MainOptions, checks=(quiet_needs_the_lead,)).parse(["-q"])


def test_deprecated_and_inert_flags_are_reported():
    assert list(FLAGS.parse(["-q", "--lease_duration=20s", "--old-thing", "--kubeconfig", "x"]).remarks()) == [
        "--lease_duration is accepted for --lease-duration",
        "--old-thing without effect: needs a cloud, which is not built yet",
    ]
    assert list(FLAGS.parse([]).remarks()) == []


def test_duplicate_flag_of_two_groups_is_refused():
    class Other(Options):
        kubeconfig: str = flag("", "clashes with an alias")

    with pytest.raises(ValueError, match="--kubeconfig is declared by MainOptions and Other"):
        FlagSet(MainOptions, Other)


def test_group_given_twice_counts_once():
    assert len(list(FlagSet(LeaseOptions, LeaseOptions))) == len(list(FlagSet(LeaseOptions)))


def test_field_without_flag_raises_type_error():
    class Bare(Options):
        plain: int = 3

    with pytest.raises(TypeError, match=r"Bare\.plain"):
        FlagSet(Bare)


def test_settings_contain_effective_values():
    assert FLAGS.parse(["--lease-duration=90s", "--controllers=a,b"]).settings() == {
        "leader-elect": True,
        "lease-duration": "1m30s",
        "renew-deadline": "10s",
        "clusterconfig": "",
        "controllers": ["a", "b"],
        "labels": {},
        "v": 0,
        "quiet": False,
        "mode": "fast",
        "mask": None,
        "old-thing": False,
        "help": False,
        "version": "false",
    }


def test_parsed_options_can_be_built_directly():
    assert Parsed(MainOptions(v=2))[MainOptions].v == 2


@given(
    st.builds(
        MainOptions,
        clusterconfig=st.text(max_size=10),
        controllers=st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6), max_size=4).map(
            tuple
        ),
        v=st.integers(0, 2**63 - 1),
        quiet=st.booleans(),
        mode=st.sampled_from(("fast", "safe")),
    )
)
def test_rendered_command_line_round_trips(options):
    mine = [one for one in FLAGS if one.group is MainOptions and one.name not in ("mask", "labels")]
    argv = [f"--{one.name}={one.type.format(getattr(options, one.field))}" for one in mine]
    assert main_of(*argv) == options


@given(
    st.lists(
        st.sampled_from(["--", "-", "-v", "-q", "--mode", "=", "--=", "--v=1", "x", "", "---", "--mask", "-=", "-v="])
    )
)
def test_any_command_line_parses_or_raises_flag_error(argv):
    with contextlib.suppress(FlagError):
        FLAGS.parse(argv)


HELP = """\
A daemon.

Usage: daemon [flags]

Lease flags:

      --leader-elect
          Gain leadership before acting. (default true)
      --lease-duration duration
          Wait of a standby. (at least 1s; default 15s)
      --renew-deadline duration
          Longest time without a renewal. (default 10s)

Main flags:

      --clusterconfig file
          Client configuration file. (also --kubeconfig)
      --controllers strings
          Which controllers run. (default *)
      --labels stringToString
          Labels to add.
  -v, --v int
          Verbosity of the log. (at least 0)
  -q, --quiet
          Say less.
      --mode string
          How to run. (one of fast, safe; default fast)
      --mask int
          Mask size.

General flags:

  -h, --help
          Print this help and exit.
      --version version[=true]
          Print the version and exit; --version=raw prints detailed version
          information; --version=v1.36.Z... sets the version that is reported.
          (default false)

Flags accepted without effect (needs a cloud):

      --old-thing
          Keep the cloud tidy.

Controllers:

  One and another.
"""


def test_help_shows_sections_types_and_defaults():
    assert help_text("daemon", "A daemon.", FLAGS, notes={"Controllers": "One and another."}) == HELP


def test_help_fits_the_width():
    assert max(map(len, help_text("daemon", "A daemon. " * 20, FLAGS, width=48).splitlines())) <= 48


def test_help_flag_prints_usage_and_exits_with_0(capsys):
    for argv in (["--v=9", "-h"], ["--help", "--nonsense"], ["-qh"], ["--help=1"]):
        with pytest.raises(SystemExit) as stopped:
            command_line("daemon", "A daemon.", FLAGS, argv)
        assert stopped.value.code == 0
        assert "Usage: daemon" in capsys.readouterr().out


def test_problems_are_printed_and_exit_with_1(capsys):
    with pytest.raises(SystemExit) as stopped:
        command_line("daemon", "A daemon.", FLAGS, ["--v=x", "--nope=1"])
    assert stopped.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "daemon: --v: not a whole number, got 'x'",
        "daemon: --nope is not a flag",
        "Run 'daemon --help' for all flags.",
    ]


def test_process_defaults_override_group_defaults():
    class Some(Options):
        size: int | None = flag(1, "how much", minimum=0)
        name: str = flag("a", "how it is called")

    flags = FlagSet(Some, defaults={"size": None, "name": "b"})
    assert {one.name: one.default for one in flags.flags[Some]} == {"size": None, "name": "b"}
    assert flags.parse([])[Some] == Some(size=None, name="b")
    assert flags.parse(["--size=2"])[Some] == Some(size=2, name="b")


class Common(Options):
    port: int = flag(1, "a port", maximum=9)


class Special(Common):
    port: int = flag(2, "a port of its own", maximum=9)
    name: str = flag("", "a name")


def test_group_is_found_by_its_base_class():
    parsed = FlagSet(Special).parse(["--name=a"])
    assert parsed[Common] is parsed[Special]
    assert (parsed[Common].port, parsed[Special].name) == (2, "a")
    both = FlagSet(Common, checks=()).parse(["--port=3"])
    assert both[Common].port == 3
    with pytest.raises(KeyError):
        both[Special]


def test_rule_on_base_of_invalid_group_is_skipped():
    flags = FlagSet(Special, checks=(lambda parsed: [f"--port is {parsed[Common].port}"],))
    with pytest.raises(FlagError) as caught:
        flags.parse(["--port=10"])
    assert caught.value.problems == ("--port: must be at most 9, got '10'",)
