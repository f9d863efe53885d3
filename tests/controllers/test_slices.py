"""Division of endpoints into slices with few writes.

After any changes the slices hold exactly the wanted endpoints, each once, and no slice exceeds the limit. Without a
change nothing is written. A change of n endpoints writes at most n slices and the slices that n new endpoints need.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.core import SERVICES, Service
from controller_manager.common.api.discovery import Endpoint, EndpointConditions, EndpointSlice, SlicePort
from controller_manager.common.api.model import ObjectMeta
from controllers.shared.slices import SliceGroup, SliceIdentity, SliceWrites, Style, Wanted, arrange, identity

OWNER = Service(metadata=ObjectMeta(namespace="ns", name="web", uid="uid-web"))
STYLE = Style(OWNER, SERVICES, {"app": "web"})
WEB, SIX, DNS = (
    SliceGroup(family, frozenset({SlicePort(port=port)})) for family, port in (("IPv4", 80), ("IPv6", 80), ("IPv4", 53))
)


def endpoint(number: int, ready: bool = True) -> Endpoint:
    return Endpoint(addresses=(f"10.0.0.{100 + number}",), conditions=EndpointConditions(ready=ready))


def wanted(**groups: Iterable[Endpoint]) -> dict[SliceGroup, dict[SliceIdentity, Endpoint]]:
    by_name = {"web": WEB, "six": SIX, "dns": DNS}
    return {by_name[name]: {identity(e): e for e in endpoints} for name, endpoints in groups.items()}


class FakeServer:
    """The existing slices, stored like on an API server."""

    def __init__(self) -> None:
        self.slices: dict[str, EndpointSlice] = {}
        self._made = 0

    def write(self, wanted: Wanted, limit: int, *, style: Style = STYLE, families: Iterable[str] = ()) -> SliceWrites:
        arrangement = arrange(self.slices.values(), wanted, limit, style.is_due, families)
        writes = style.writes(arrangement, dict)
        for slice_ in writes.create:
            self._made += 1
            name = f"web-{self._made * 7 % 1000:03}"  # unique, and not in the order of creation
            self.slices[name] = replace(slice_, metadata=replace(slice_.metadata, name=name))
        for slice_ in writes.update:
            assert slice_.address_type == self.slices[slice_.metadata.name].address_type
            self.slices[slice_.metadata.name] = slice_
        for slice_ in writes.delete:
            del self.slices[slice_.metadata.name]
        return writes

    def sizes(self) -> list[int]:
        return sorted(len(slice_.endpoints or ()) for slice_ in self.slices.values())

    def held(self) -> list[tuple[SliceGroup, Endpoint]]:
        return [
            (SliceGroup(s.address_type, frozenset(s.ports or ())), e)
            for s in self.slices.values()
            for e in s.endpoints or ()
        ]


def some(count: int, start: int = 0) -> list[Endpoint]:
    return [endpoint(number) for number in range(start, start + count)]


def test_new_slices_are_full_except_one() -> None:
    server = FakeServer()
    writes = server.write(wanted(web=some(23)), 10)
    assert len(writes.create) == 3
    assert server.sizes() == [3, 10, 10]


@pytest.mark.parametrize(
    ("before", "after", "sizes", "writes"),
    [
        pytest.param(some(15), some(17), [7, 10], 1, id="fitting endpoints go into one existing slice"),
        pytest.param(some(18), some(23), [5, 8, 10], 1, id="endpoints that do not fit get a new slice"),
        pytest.param(some(20), some(19, start=1), [9, 10], 1, id="removed endpoints leave room"),
        pytest.param(some(20), some(22, start=1), [2, 10, 10], 2, id="a changed slice is filled"),
        pytest.param(some(20), some(10), [10], 1, id="an empty slice is deleted"),
        pytest.param(some(20), [*some(10), *some(3, start=50)], [3, 10], 1, id="an empty slice takes new endpoints"),
        pytest.param(
            some(5), [endpoint(n, ready=n > 0) for n in range(5)], [5], 1, id="an endpoint changes its readiness"
        ),
        pytest.param(some(5), some(5)[::-1], [5], 0, id="another order is no change"),
    ],
)
def test_change_writes_few_slices(before: list[Endpoint], after: list[Endpoint], sizes: list[int], writes: int) -> None:
    server = FakeServer()
    server.write(wanted(web=before), 10)
    assert server.write(wanted(web=after), 10).size == writes
    assert server.sizes() == sizes


def test_new_endpoint_goes_to_fullest_slice_with_room() -> None:
    server = FakeServer()
    server.write(wanted(web=some(10)), 5)
    server.write(wanted(web=[*some(4), *some(2, start=5)]), 5)
    assert server.sizes() == [2, 4]
    assert server.write(wanted(web=[*some(4), *some(2, start=5), endpoint(20)]), 5).size == 1
    assert server.sizes() == [2, 5]


def test_slice_without_port_group_is_reused() -> None:
    server = FakeServer()
    server.write(wanted(web=some(3)), 10)
    names = set(server.slices)
    writes = server.write(wanted(dns=some(3)), 10)
    assert (len(writes.create), len(writes.update), len(writes.delete)) == (0, 1, 0)
    assert set(server.slices) == names


def test_slice_never_changes_its_address_family() -> None:
    server = FakeServer()
    server.write(wanted(web=some(3)), 10)
    writes = server.write(wanted(six=some(3)), 10)
    assert (len(writes.create), len(writes.update), len(writes.delete)) == (1, 0, 1)


def test_no_endpoints_leaves_one_empty_slice() -> None:
    server = FakeServer()
    assert server.write({}, 10, families=["IPv4"]).size == 1
    assert server.write({}, 10, families=["IPv4"]).size == 0
    (empty,) = server.slices.values()
    assert (empty.endpoints, empty.ports) == ((), ())
    assert len(server.write(wanted(web=some(3)), 10, families=["IPv4"]).update) == 1
    assert len(server.write({}, 10, families=["IPv4"]).update) == 1
    assert list(server.slices) == [empty.metadata.name] or len(server.slices) == 1


def test_slice_rewritten_for_labels_is_filled() -> None:
    server = FakeServer()
    server.write(wanted(web=some(8)), 10)
    writes = server.write(wanted(web=some(9)), 10, style=Style(OWNER, SERVICES, {"app": "other"}))
    assert [slice_.metadata.labels for slice_ in writes.update] == [{"app": "other"}]
    assert server.sizes() == [9]


def test_lower_limit_splits_slices() -> None:
    server = FakeServer()
    server.write(wanted(web=some(10)), 10)
    server.write(wanted(web=some(10)), 4)
    assert server.sizes() == [2, 4, 4]


def test_duplicate_endpoint_stays_in_one_slice() -> None:
    server = FakeServer()
    server.write(wanted(web=some(3)), 10)
    (twin,) = server.slices.values()
    server.slices["web-zz"] = replace(twin, metadata=replace(twin.metadata, name="web-zz"))
    assert len(server.write(wanted(web=some(3)), 10).delete) == 1
    assert server.sizes() == [3]


groups = st.sampled_from([WEB, SIX, DNS])
states = st.dictionaries(
    groups,
    st.dictionaries(st.integers(0, 30), st.booleans(), max_size=30).map(
        lambda found: {identity(e): e for e in (endpoint(number, ready) for number, ready in found.items())}
    ),
)


@given(st.lists(st.tuples(states, st.integers(1, 8)), max_size=6))
def test_slices_match_wanted_endpoints_after_any_changes(steps: list[tuple[Wanted, int]]) -> None:
    server, former = FakeServer(), 0
    for goal, limit in steps:
        before = set(server.held())
        writes = server.write(goal, limit, families=["IPv4"])
        expected = {(group, e) for group, endpoints in goal.items() for e in endpoints.values()}
        held = server.held()
        assert set(held) == expected
        assert len(held) == len(expected)
        assert max(server.sizes()) <= limit
        if limit == former:
            gone, new = len(before - expected), len(expected - before)
            assert writes.size <= gone + -(-new // limit) + 2 * len(goal) + 1
        assert server.write(goal, limit, families=["IPv4"]).size == 0
        former = limit


@given(states, st.integers(1, 30))
def test_one_changed_endpoint_is_one_write(goal: Wanted, number: int) -> None:
    server = FakeServer()
    server.write(goal, 8, families=["IPv4"])
    endpoints = dict(goal.get(WEB, {}))
    name = identity(endpoint(number))
    endpoints.pop(name, None) or endpoints.setdefault(name, endpoint(number))
    assert server.write({**goal, WEB: endpoints}, 8, families=["IPv4"]).size == 1
