"""Allocation of pod CIDRs, also compared with a model, and the flags of CIDR sizes."""

from collections import Counter
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.core import Node
from controllers.node_ipam.cidr_set import CIDRSet, RangeAllocator
from controllers.shared.node_ranges import NodeRangeOptions, ranges_of


def allocate(cidr_set: CIDRSet, count: int) -> list[str]:
    return [str(cidr_set.take()) for _ in range(count)]


@pytest.mark.parametrize(
    ("network", "mask", "first"),
    [
        ("10.0.0.0/16", 24, ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]),
        ("10.1.0.0/23", 24, ["10.1.0.0/24", "10.1.1.0/24", "None"]),
        ("10.1.2.0/24", 24, ["10.1.2.0/24", "None", "None"]),
        ("fd00::/48", 64, ["fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:2::/64"]),
        ("fd00::/60", 72, ["fd00::/72", "fd00:0:0:0:100::/72", "fd00:0:0:0:200::/72"]),
        ("fd00::/112", 128, ["fd00::/128", "fd00::1/128", "fd00::2/128"]),
    ],
)
def test_cidrs_are_allocated_in_order(network: str, mask: int, first: list[str]) -> None:
    found = allocate(CIDRSet(ip_network(network), mask), 3)
    assert found == [text if text == "None" else str(ip_network(text)) for text in first]


@pytest.mark.parametrize(
    ("held", "used"),
    [
        ("10.0.0.0/24", 1),
        ("10.0.0.128/25", 1),
        ("10.0.2.0/23", 2),
        ("10.0.0.0/16", 16),
        ("10.0.0.0/8", 16),
        ("0.0.0.0/0", 16),
        ("10.0.15.0/24", 1),
        ("10.0.16.0/24", 0),
        ("9.0.0.0/8", 0),
        ("fd00::/8", 0),
    ],
)
def test_held_network_occupies_overlapping_cidrs(held: str, used: int) -> None:
    cidr_set = CIDRSet(IPv4Network("10.0.0.0/20"), 24)
    assert cidr_set.hold(ip_network(held)) is (used > 0)
    assert cidr_set.used == used
    cidr_set.release(ip_network(held))
    assert (cidr_set.used, cidr_set.allocations, cidr_set.releases) == (0, used, used)


networks = st.integers(0, 31).flatmap(
    lambda bits: st.builds(
        lambda at: ip_network(((10 << 24) + (at << 6), 32 - bits % 12), strict=False), st.integers(0, 31)
    )
)


@given(st.lists(st.one_of(st.none(), st.tuples(st.booleans(), networks)), max_size=60))
def test_cidr_is_free_unless_held(steps: list[tuple[bool, IPv4Network | IPv6Network] | None]) -> None:
    """`None` allocates the next CIDR; the flag of other steps holds or releases a network."""
    cidr_set = CIDRSet(IPv4Network("10.0.0.0/22"), 26)
    parts = list(IPv4Network("10.0.0.0/22").subnets(new_prefix=26))
    held: Counter[IPv4Network | IPv6Network] = Counter()
    after = 0
    for step in steps:
        in_use = [any(part.overlaps(network) for network in held.elements()) for part in parts]
        if step is None:
            found = cidr_set.take()
            order = [(after + offset) % len(parts) for offset in range(len(parts))]
            expected = next((index for index in order if not in_use[index]), None)
            assert found == (None if expected is None else parts[expected])
            if found is not None and expected is not None:
                held[found] += 1
                after = (expected + 1) % len(parts)
        elif step[0]:
            cidr_set.hold(step[1])
            held[step[1]] += 1
        elif held[step[1]]:
            cidr_set.release(step[1])
            held[step[1]] -= 1
        assert cidr_set.used == sum(any(part.overlaps(one) for one in held.elements()) for part in parts)
        assert cidr_set.used == cidr_set.allocations - cidr_set.releases


def test_cidr_with_too_many_holders_stays_in_use() -> None:
    cidr_set, network = CIDRSet(IPv4Network("10.0.0.0/23"), 24), IPv4Network("10.0.0.0/24")
    for _ in range(300):
        cidr_set.hold(network)
    for _ in range(300):
        cidr_set.release(network)
    assert allocate(cidr_set, 2) == ["10.0.1.0/24", "None"]


def allocator(*reserved: str) -> RangeAllocator:
    sets = [CIDRSet(IPv4Network("10.0.0.0/22"), 24), CIDRSet(IPv6Network("fd00::/63"), 64)]
    return RangeAllocator(sets, [ip_network(text) for text in reserved])


def test_node_keeps_its_cidrs_until_release() -> None:
    ranges = allocator()
    first = ranges.assign("a", "1")
    assert first == ("10.0.0.0/24", "fd00::/64")
    assert ranges.assign("a", "1") == first
    assert ranges.assign("b", "2") == ("10.0.1.0/24", "fd00:0:0:1::/64")
    assert ranges.release("a")
    assert not ranges.release("a")
    assert ranges.assign("a", "3") == ("10.0.2.0/24", "fd00::/64")


def test_exhausted_family_allocates_nothing() -> None:
    ranges = allocator("fd00::/64")
    ranges.assign("a", "1")
    assert ranges.assign("b", "2") == ()
    assert [one.used for one in ranges.sets] == [1, 2]
    assert ranges.held("b") is None


def test_cidrs_of_node_spec_replace_the_assigned_ones() -> None:
    ranges = allocator()
    ranges.assign("a", "1")
    assert ranges.occupy("a", "1", ["10.0.3.0/24"]) == []
    assert ranges.occupy("a", "1", ["10.0.3.0/24"]) == []
    assert [one.used for one in ranges.sets] == [1, 0]
    assert ranges.assign("b", "2") == ("10.0.1.0/24", "fd00:0:0:1::/64")


def test_cidrs_outside_cluster_cidrs_are_reported() -> None:
    ranges = allocator()
    assert ranges.occupy("a", "1", ["192.168.0.0/24", "fd00::/64", "?"]) == ["192.168.0.0/24", "?"]
    assert [one.used for one in ranges.sets] == [0, 1]
    ranges.release("a")
    assert [one.used for one in ranges.sets] == [0, 0]


def test_cidr_of_two_nodes_stays_in_use_after_one_release() -> None:
    ranges = allocator()
    ranges.occupy("a", "1", ["10.0.0.0/24"])
    ranges.occupy("b", "2", ["10.0.0.0/24"])
    ranges.release("a")
    assert ranges.assign("c", "3")[0] == "10.0.1.0/24"


def test_node_with_pod_cidr_field_only_is_read() -> None:
    assert ranges_of(Node.decode(b'{"spec":{"podCIDR":"10.0.0.0/24"}}')) == ("10.0.0.0/24",)
    assert ranges_of(Node.decode(b'{"spec":{}}')) == ()


def test_mask_sizes_by_family_flags() -> None:
    assert NodeRangeOptions().node_masks == {4: 24, 6: 64}
    assert NodeRangeOptions(node_cidr_mask_size_ipv4=26, node_cidr_mask_size_ipv6=80).node_masks == {4: 26, 6: 80}
    assert NodeRangeOptions(node_cidr_mask_size=28).node_masks == {4: 28, 6: 28}
