"""Feature gates, the emulated version and their effects."""

import pytest

from controller_manager.app import features
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.common.component import features as common
from controller_manager.common.component.features import known_gates
from controller_manager.common.options.gates import gates_at
from controller_manager.common.options.parse import FlagError, FlagSet

FLAGS = FlagSet(ManagerFeatureOptions)


def parse(*argv: str) -> ManagerFeatureOptions:
    return FLAGS.parse(argv)[ManagerFeatureOptions]


@pytest.mark.flag("feature-gates")
@pytest.mark.parametrize(
    ("flags", "enabled"),
    [
        ((), False),
        (("--feature-gates=LoggingAlphaOptions=true",), True),
        (("--feature-gates=kube:LoggingAlphaOptions=true",), True),
        (("--feature-gates=AllAlpha=true",), True),
        (("--feature-gates=AllAlpha=true,LoggingAlphaOptions=false",), False),
        (("--feature-gates", "AllAlpha=false", "--feature-gates", " LoggingAlphaOptions = T"), True),
        (("--feature-gates=",), False),
    ],
)
def test_gate_is_set_by_name_or_stage(flags, enabled):
    assert parse(*flags).enabled(common.LOGGING_ALPHA) is enabled


@pytest.mark.flag("emulated-version")
def test_emulated_version_sets_defaults():
    assert parse("--emulated-version=1.35").enabled(features.WATCH_LIST)
    assert not parse("--emulated-version=kube=1.34").enabled(features.WATCH_LIST)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--feature-gates=Nonsense=true"], "--feature-gates: there is no feature gate Nonsense"),
        (
            ["--feature-gates=ComponentFlags=true"],
            "--feature-gates: there is no feature gate ComponentFlags; did you mean ComponentFl",
        ),
        (
            ["--feature-gates=ComponentFlagz=maybe"],
            "--feature-gates: the feature gate ComponentFlagz is true or false, not 'maybe'",
        ),
        (["--feature-gates=ComponentFlagz"], "--feature-gates: ComponentFlagz needs a value, as in ComponentFlagz=tru"),
        (["--feature-gates=wardle:Fish=true"], "--feature-gates: there is no component wardle, only kube"),
        (
            ["--feature-gates=WatchListClent=true"],
            "--feature-gates: there is no feature gate WatchListClent; did you m",
        ),
        (
            ["--feature-gates=SidecarContainers=false"],
            "--feature-gates: the feature SidecarContainers can no longer be",
        ),
        (
            ["--feature-gates=AtomicFIFO=true", "--emulated-version=1.35"],
            "--feature-gates: AtomicFIFO came later than --emulated-version",
        ),
        (["--emulated-version=1.37"], "--emulated-version: must be from 1.33 to 1.36"),
        (["--emulated-version=1.32"], "--emulated-version: must be from 1.33 to 1.36"),
        (["--emulated-version=latest"], "--emulated-version: must be one version such as 1.36 or kube=1.36"),
        (["--emulated-version=1.35,1.36"], "--emulated-version: must be one version such as 1.36 or kube=1.36"),
        (["--emulated-version=wardle=1.2"], "--emulated-version: there is no component wardle, only kube"),
    ],
)
def test_invalid_feature_flags_are_refused(argv, problem):
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    (message,) = caught.value.problems
    assert message.startswith(problem)


def test_undeclared_gate_raises_key_error():
    with pytest.raises(KeyError):
        parse().enabled("AllAlpha")


def test_problems_of_both_flags_are_reported():
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(["--emulated-version=2.0", "--feature-gates=wardle:Fish=true"])
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["--feature-gates", "--emulated-version"]


def test_gates_without_effect_are_reported():
    options = parse(
        "--feature-gates=AllBeta=true,DRAListTypeAttributes=true,SidecarContainers=true,WatchListClient=true"
    )
    assert list(options.remarks()) == [
        "the feature gate DRAListTypeAttributes has no effect here",
        "the feature gate SidecarContainers has no effect here",
    ]


def test_locked_gate_accepts_its_locked_value():
    parse("--feature-gates=SidecarContainers=true,GitRepoVolumeDriver=false")


@pytest.mark.parametrize("minor", [33, 34, 35, 36])
def test_every_gate_accepts_its_default(minor):
    gates = gates_at(known_gates(), (1, minor))
    flags = ",".join(f"{gate.name}={str(gate.default).lower()}" for gate in gates)
    assert len(gates) > 150
    parse(f"--emulated-version=1.{minor}", f"--feature-gates={flags}")


def test_every_gate_in_use_is_known():
    assert set(features.READ) <= {gate.name for gate in known_gates()}
