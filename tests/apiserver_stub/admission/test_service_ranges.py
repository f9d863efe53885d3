"""Numbers are drawn from the upper band first, and each is drawn once (KEP-3070, KEP-3668)."""

from ipaddress import ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.admission.services.ranges import NumberRange, addresses, ports


@pytest.mark.parametrize(
    ("network", "first", "size", "band"),
    [
        ("10.0.0.0/24", "10.0.0.1", 254, 16),
        ("10.0.0.0/20", "10.0.0.1", 4094, 255),
        ("10.96.0.0/12", "10.96.0.1", 1048574, 256),
        ("10.0.0.0/29", "10.0.0.1", 6, 0),
        ("fd00::/112", "fd00::1", 65535, 256),
    ],
)
def test_address_range_of_network(network: str, first: str, size: int, band: int) -> None:
    found = addresses(ip_network(network))
    assert (found.first, found.size, found.band) == (int(ip_network(first).network_address), size, band)


def test_port_ranges() -> None:
    assert ports(range(30000, 32768)) == NumberRange(30000, 2768, 86)
    assert ports(range(30000, 30010)) == NumberRange(30000, 10, 0)
    assert ports(range(1, 65536)).band == 128


@given(st.integers(1, 60), st.integers(0, 60), st.randoms(use_true_random=False))
def test_each_number_is_drawn_once_with_lower_band_last(size: int, band: int, source: object) -> None:
    numbers = NumberRange(100, size, min(band, size))
    drawn: list[int] = []
    while (found := numbers.draw(lambda n: n not in drawn, source.randrange)) is not None:
        assert found in numbers
        drawn.append(found)
    assert sorted(drawn) == list(range(100, 100 + size))
    upper = size - numbers.band
    assert min(drawn[:upper], default=100 + numbers.band) == 100 + numbers.band


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 70), st.randoms(use_true_random=False))
def test_numbers_drawn_at_once_are_distinct_lower_band_last(size: int, band: int, count: int, source: Random) -> None:
    numbers = NumberRange(100, size, min(band, size))
    looked_at: list[int] = []
    taken = set(source.sample(range(100, 100 + size), size // 3))

    def is_free(number: int) -> bool:
        looked_at.append(number)
        return number not in taken

    drawn = numbers.draw_many(count, is_free, source.randrange)
    free = set(range(100, 100 + size)) - taken
    assert len(drawn) == len(set(drawn)) == min(count, len(free))
    assert set(drawn) <= free
    assert len(looked_at) == len(set(looked_at))
    upper = [number for number in drawn if number >= 100 + numbers.band]
    assert drawn[: len(upper)] == upper
    assert len(upper) == min(count, len({number for number in free if number >= 100 + numbers.band}))
