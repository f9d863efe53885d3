"""Slices that mirror Endpoints."""

import msgspec
import pytest

from controller_manager.common.api.core import Endpoints
from controllers import endpoint_slice_mirroring as mirroring


def endpoints(*subsets: dict[str, object]) -> Endpoints:
    return msgspec.convert({"metadata": {"namespace": "ns", "name": "web"}, "subsets": list(subsets)}, Endpoints)


def addresses(*ips: str) -> list[dict[str, str]]:
    return [{"ip": ip} for ip in ips]


def listed(mirror: mirroring.Mirror) -> dict[tuple[str, tuple[int | None, ...]], list[tuple[str, bool | None]]]:
    return {
        (group.family, tuple(port.port for port in group.ports)): [
            (endpoint.addresses[0], endpoint.conditions.ready) for endpoint in found.values()
        ]
        for group, found in mirror.wanted.items()
    }


WEB, DNS = {"ports": [{"port": 80}]}, {"ports": [{"port": 53}]}


def test_mirrored_slices_are_split_by_family_and_ports() -> None:
    mirror = mirroring.mirror_of(
        endpoints({"addresses": addresses("10.0.0.1", "fd00::1"), **WEB}, {"addresses": addresses("10.0.0.2"), **DNS}),
        10,
    )
    assert listed(mirror) == {
        ("IPv4", (80,)): [("10.0.0.1", True)],
        ("IPv6", (80,)): [("fd00::1", True)],
        ("IPv4", (53,)): [("10.0.0.2", True)],
    }


def test_subsets_with_equal_ports_are_merged_without_duplicates() -> None:
    mirror = mirroring.mirror_of(
        endpoints(
            {"addresses": addresses("10.0.0.1"), **WEB},
            {"addresses": addresses("10.0.0.2"), "notReadyAddresses": addresses("10.0.0.1", "10.0.0.3"), **WEB},
        ),
        10,
    )
    assert listed(mirror) == {("IPv4", (80,)): [("10.0.0.1", True), ("10.0.0.2", True), ("10.0.0.3", False)]}


def test_limit_applies_per_subset_and_prefers_ready() -> None:
    full = {"addresses": addresses("10.0.0.1", "10.0.0.2"), "notReadyAddresses": addresses("10.0.0.3"), **WEB}
    other = {"addresses": addresses("10.0.0.4", "nonsense", "10.0.0.5"), **WEB}
    mirror = mirroring.mirror_of(endpoints(full, other), 2)
    assert [ip for ip, _ in listed(mirror)["IPv4", (80,)]] == ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5"]
    assert (mirror.too_many, mirror.invalid) == (1, 1)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.00.01", "10.0.0.1"),
        ("10.0.0.256", ""),
        ("10.0.0", ""),
        ("FD00::0:1", "fd00::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("10..0.1", ""),
        ("example.org", ""),
        ("", ""),
    ],
)
def test_canonical_ip_of_each_spelling(text: str, canonical: str) -> None:
    assert mirroring.canonical_ip(text) == canonical
