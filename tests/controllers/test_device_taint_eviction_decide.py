"""Which device taints evict pods and when, and the status of DeviceTaintRules."""

from math import inf

import pytest

from controller_manager.common.api.core import Taint, Toleration
from controller_manager.common.api.devices import (
    AllocatedDevice,
    Device,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from controller_manager.common.api.model import ObjectMeta
from controllers.device_taint_eviction.decide import (
    Counts,
    causes,
    progress,
    published_devices,
    tolerated_seconds,
)
from controllers.shared.device_claims import selector_of

ADDED = "1970-01-01T00:01:40Z"  # a hundred seconds after the epoch
NO_EXECUTE = Taint(key="k", value="v", effect="NoExecute", time_added=ADDED)


def tolerating(seconds: int | None = None, **fields: str) -> Toleration:
    given = {"key": "k", "operator": "Exists", "effect": "NoExecute"} | fields
    return Toleration(**given, toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 0),
        ((tolerating(),), inf),
        ((tolerating(60),), 60),
        ((tolerating(-5),), 0),
        ((tolerating(60), tolerating(20), tolerating(40)), 20),
        ((tolerating(60), tolerating()), inf),
        ((tolerating(60, key="other"),), 0),
        ((tolerating(60, key=""),), 60),
        ((tolerating(60, effect=""),), 60),
        ((tolerating(60, effect="NoSchedule"),), 0),
        ((tolerating(60, operator="Equal", value="v"),), 60),
        ((tolerating(60, operator="Equal", value="w"),), 0),
        ((tolerating(60, operator="", value="v"),), 60),
        ((tolerating(60, operator="Gt", value="v"),), 0),
    ],
)
def test_tolerated_seconds_by_tolerations(tolerations: tuple[Toleration, ...], seconds: float) -> None:
    assert tolerated_seconds(NO_EXECUTE, tolerations) == seconds


def published(*taints: Taint, generation: int = 1, name: str = "s", device: str = "d") -> ResourceSlice:
    pool = ResourcePool(name="pool", generation=generation)
    spec = ResourceSliceSpec(driver="driver", pool=pool, devices=(Device(name=device, taints=taints), Device(name="e")))
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def rule(selector: DeviceTaintSelector | None, effect: str = "NoExecute") -> DeviceTaintRule:
    taint = Taint(key="r", effect=effect, time_added=ADDED)
    return DeviceTaintRule(
        metadata=ObjectMeta(name="r", generation=3), spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    )


EVERYTHING = DeviceTaintSelector()
OTHER_EFFECTS = (Taint(key="k", effect="NoSchedule"), Taint(key="k", effect="None"))


@pytest.mark.parametrize(
    ("pool", "rules", "tolerations", "due"),
    [
        ([], [], (), []),
        ([published()], [], (), []),
        ([published(NO_EXECUTE)], [], (), [100]),
        ([published(NO_EXECUTE)], [], (tolerating(60),), [160]),
        ([published(NO_EXECUTE)], [], (tolerating(),), []),
        ([published(*OTHER_EFFECTS)], [], (), []),
        ([published(NO_EXECUTE, device="f")], [], (), []),
        ([published(NO_EXECUTE), published(generation=2, name="t")], [], (), []),
        ([published(), published(NO_EXECUTE, generation=2, name="t")], [], (), [100]),
        ([published(Taint(key="k", effect="NoExecute"))], [], (), [0]),
        ([], [rule(EVERYTHING)], (), [100]),
        ([], [rule(None)], (), []),
        ([], [rule(EVERYTHING)], (tolerating(60, key="r"),), [160]),
        ([published(NO_EXECUTE)], [rule(EVERYTHING)], (tolerating(60),), [160, 100]),
    ],
)
def test_eviction_times_by_taints_rules_and_tolerations(
    pool: list[ResourceSlice], rules: list[DeviceTaintRule], tolerations: tuple[Toleration, ...], due: list[float]
) -> None:
    device = AllocatedDevice(driver="driver", pool="pool", device="d", tolerations=tolerations)
    assert [cause.due for cause in causes(device, pool, rules)] == due


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        (EVERYTHING, True),
        (DeviceTaintSelector(driver="driver"), True),
        (DeviceTaintSelector(driver="another"), False),
        (DeviceTaintSelector(pool="pool"), True),
        (DeviceTaintSelector(pool=""), False),
        (DeviceTaintSelector(device="d", pool="pool"), True),
        (DeviceTaintSelector(device="d", pool="another"), False),
        (DeviceTaintSelector(device="e"), False),
    ],
)
def test_which_devices_a_rule_selects(selector: DeviceTaintSelector | None, selected: bool) -> None:
    assert selector_of(rule(selector))(AllocatedDevice(driver="driver", pool="pool", device="d")) is selected


def test_devices_of_older_pool_generations_are_ignored() -> None:
    slices = [published(), published(generation=2, name="t", device="f")]
    assert [(one.driver, one.pool, one.device) for one in published_devices(slices)] == [
        ("driver", "pool", "f"),
        ("driver", "pool", "e"),
    ]


@pytest.mark.parametrize(
    ("effect", "counts", "evicted", "status", "reason", "message"),
    [
        ("NoExecute", Counts(9, 9, 0, 0), 0, "False", "NotStarted", ""),
        (
            *("NoExecute", Counts(9, 9, 1, 1), 0, "True", "PodsPendingEviction"),
            "1 pod needs to be evicted in 1 namespace.",
        ),
        (
            *("NoExecute", Counts(9, 9, 3, 2), 1, "True", "PodsPendingEviction"),
            "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
        ),
        ("NoExecute", Counts(9, 9, 0, 0), 2, "False", "Completed", "2 pods evicted since starting the controller."),
        (
            "NoSchedule",
            Counts(0, 0, 0, 0),
            0,
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.",
        ),
        (
            *("None", Counts(1, 2, 0, 0), 0, "False", "NoEffect"),
            (
                "1 published device selected. 2 allocated devices selected. 0 pods would be evicted in 0 different "
                "namespaces if the effect was NoExecute. This information will not be updated again. Recreate the "
                "DeviceTaintRule to trigger an update."
            ),
        ),
    ],
)
def test_rule_condition_by_effect_and_counts(
    effect: str, counts: Counts, evicted: int, status: str, reason: str, message: str
) -> None:
    condition = progress(rule(EVERYTHING, effect), counts, evicted)
    assert (condition.type, condition.status, condition.reason) == ("EvictionInProgress", status, reason)
    assert condition.message == message
    assert condition.observed_generation == 3
