"""Decisions of the ServiceCIDR controller."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.networking import ServiceCIDR, ServiceCIDRSpec
from controllers.service_cidrs import FINALIZER, GRACE, CIDRAction, decide

FINALIZE, READY, KEEP, WAIT, RELEASE = (
    CIDRAction.FINALIZE,
    CIDRAction.READY,
    CIDRAction.KEEP,
    CIDRAction.WAIT,
    CIDRAction.RELEASE,
)


def range_of(
    *cidrs: str, name: str = "mine", finalizers: tuple[str, ...] = (FINALIZER,), gone: str = ""
) -> ServiceCIDR:
    meta = ObjectMeta(name=name, finalizers=tuple(finalizers), deletion_timestamp=gone or None)
    return ServiceCIDR(metadata=meta, spec=ServiceCIDRSpec(cidrs=cidrs))


def other(*cidrs: str, name: str = "other", gone: str = "") -> ServiceCIDR:
    return range_of(*cidrs, name=name, gone=gone)


LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(("finalizers", "step"), [((), FINALIZE), (("a/b",), FINALIZE), ((FINALIZER, "a/b"), READY)])
def test_active_range_gets_finalizer_and_is_ready(finalizers: tuple[str, ...], step: CIDRAction) -> None:
    mine = range_of("10.0.0.0/24", finalizers=finalizers)
    assert decide(mine, [mine], ["10.0.0.7"], None) is step


@pytest.mark.parametrize(
    ("mine", "others", "addresses", "step"),
    [
        pytest.param(("10.0.0.0/24",), [], [], RELEASE, id="nothing in it"),
        pytest.param(("10.0.0.0/24",), [], ["10.0.0.7"], KEEP, id="an address in it"),
        pytest.param(("10.0.0.0/24",), [], ["10.0.1.7", "fd00::7"], RELEASE, id="addresses elsewhere"),
        pytest.param(("10.0.0.0/24",), [], ["10.0.0.0", "10.0.0.255"], RELEASE, id="no addresses of services"),
        pytest.param(("fd00::/120",), [], ["fd00::"], RELEASE, id="the network of version 6"),
        pytest.param(("fd00::/120",), [], ["fd00::ff"], KEEP, id="the last of version 6"),
        pytest.param(("10.0.0.0/24", "fd00::/120"), [], ["fd00::7"], KEEP, id="an address of one family"),
        pytest.param(("10.0.0.0/24",), [other("10.0.0.0/16")], ["10.0.0.7"], RELEASE, id="within a larger one"),
        pytest.param(("10.0.0.0/24",), [other("10.0.0.0/24")], ["10.0.0.7"], RELEASE, id="the same range"),
        pytest.param(("10.0.0.0/24",), [other("10.1.0.0/16")], ["10.0.0.7"], KEEP, id="another range"),
        pytest.param(("10.0.0.0/24",), [other("10.0.0.0/28")], ["10.0.0.7"], RELEASE, id="a smaller one contains it"),
        pytest.param(
            ("10.0.0.0/24",), [other("10.0.0.0/28")], ["10.0.0.77"], KEEP, id="a smaller one does not contain it"
        ),
        pytest.param(("10.0.0.0/24",), [other("10.0.0.0/28")], ["10.0.0.15"], KEEP, id="last of a smaller one"),
        pytest.param(
            ("10.0.0.0/24", "fd00::/120"), [other("10.0.0.0/16")], ["10.0.0.7"], RELEASE, id="one family elsewhere"
        ),
        pytest.param(
            ("10.0.0.0/24", "fd00::/120"), [other("10.0.0.0/16")], ["fd00::7"], KEEP, id="the other family not"
        ),
        pytest.param(
            ("10.0.0.0/24",), [other("10.0.0.0/16", gone=LONG_AGO)], ["10.0.0.7"], RELEASE, id="a larger one, ending"
        ),
        pytest.param(
            ("10.0.0.0/24",), [other("10.0.0.0/28", gone=LONG_AGO)], ["10.0.0.7"], KEEP, id="a smaller one, ending"
        ),
        pytest.param(
            ("10.0.0.0/24",),
            [other("10.0.0.0/24", gone=LONG_AGO)],
            ["10.0.0.7"],
            RELEASE,
            id="the last of equal ranges is deleted",
        ),
        pytest.param(
            ("10.0.0.0/24",), [other("10.0.0.0/24", name="a", gone=LONG_AGO)], ["10.0.0.7"], KEEP, id="is the last"
        ),
    ],
)
def test_deleted_range_stays_while_addresses_need_it(
    mine: tuple[str, ...], others: list[ServiceCIDR], addresses: list[str], step: CIDRAction
) -> None:
    deleted = range_of(*mine, gone=LONG_AGO)
    assert decide(deleted, [deleted, *others], addresses, GRACE) is step
    sooner = WAIT if step is RELEASE else step
    assert decide(deleted, [*others, deleted], addresses, GRACE - 1) is sooner


RANGES = ("10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/26", "10.0.0.0/24")
ADDRESSES = ("10.0.0.1", "10.0.0.63", "10.0.0.100", "10.0.0.200")


@given(st.lists(st.sampled_from(RANGES), min_size=1, max_size=4), st.sets(st.sampled_from(ADDRESSES)))
def test_concurrent_deletion_keeps_every_address_covered(ranges: list[str], addresses: set[str]) -> None:
    """All ranges are deleted at once; the remaining ones cover all addresses that were covered."""
    every = [range_of(text, name=f"r{number}", gone=LONG_AGO) for number, text in enumerate(ranges)]
    had = _held(every, addresses)
    for order in permutations(every):
        left = list(every)
        for one in order:
            if decide(one, left, addresses, GRACE) is RELEASE:
                left.remove(one)
        assert _held(left, addresses) == had
    together = [one for one in every if decide(one, every, addresses, GRACE) is not RELEASE]
    assert _held(together, addresses) == had, "as two managers with outdated caches would"


def _held(ranges: list[ServiceCIDR], addresses: set[str]) -> set[str]:
    """Return the addresses in the ranges."""
    return {each for each in addresses if any(decide(one, [one], [each], GRACE) is KEEP for one in ranges)}
