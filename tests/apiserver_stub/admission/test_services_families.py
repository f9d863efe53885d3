"""IP families and addresses of a service, by its spec and the ranges of the cluster (KEP-563)."""

from typing import Any

import pytest

from apiserver_stub.admission.services.allocations import Allocations

BOTH = "10.0.0.0/24,fd00::/112"
SIX_FIRST = "fd00::/112,10.0.0.0/24"
PREFER = {"ipFamilyPolicy": "PreferDualStack"}
REQUIRE = {"ipFamilyPolicy": "RequireDualStack"}
SINGLE = {"ipFamilyPolicy": "SingleStack"}
HEADLESS = {"clusterIP": "None", "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("spec", "ranges", "policy", "families"),
    [
        ({}, "10.0.0.0/24", "SingleStack", ["IPv4"]),
        ({}, "fd00::/112", "SingleStack", ["IPv6"]),
        ({}, BOTH, "SingleStack", ["IPv4"]),
        ({}, SIX_FIRST, "SingleStack", ["IPv6"]),
        ({"ipFamilies": ["IPv6"]}, BOTH, "SingleStack", ["IPv6"]),
        ({"clusterIPs": ["fd00::7"]}, BOTH, "SingleStack", ["IPv6"]),
        (PREFER, "10.0.0.0/24", "PreferDualStack", ["IPv4"]),
        (PREFER, BOTH, "PreferDualStack", ["IPv4", "IPv6"]),
        (PREFER | {"ipFamilies": ["IPv6"]}, BOTH, "PreferDualStack", ["IPv6", "IPv4"]),
        (REQUIRE | {"clusterIPs": ["fd00::7"]}, BOTH, "RequireDualStack", ["IPv6", "IPv4"]),
        (REQUIRE | {"ipFamilies": ["IPv6", "IPv4"]}, BOTH, "RequireDualStack", ["IPv6", "IPv4"]),
        (HEADLESS, "10.0.0.0/24", "RequireDualStack", ["IPv4", "IPv6"]),
        (HEADLESS | SINGLE, "10.0.0.0/24", "SingleStack", ["IPv4"]),
        (HEADLESS | {"selector": {"a": "b"}}, "10.0.0.0/24", "SingleStack", ["IPv4"]),
        (HEADLESS | {"selector": {"a": "b"}} | PREFER, BOTH, "PreferDualStack", ["IPv4", "IPv6"]),
    ],
)
def test_new_service_gets_families_and_addresses(
    allot, spec: dict[str, Any], ranges: str, policy: str, families: list[str]
) -> None:
    given, problems = allot(spec, ranges=ranges)
    assert problems == []
    assert (given["ipFamilyPolicy"], given["ipFamilies"]) == (policy, families)
    if "None" not in given["clusterIPs"]:
        assert ["IPv6" if ":" in ip else "IPv4" for ip in given["clusterIPs"]] == families
        assert given["clusterIP"] == given["clusterIPs"][0]


@pytest.mark.parametrize(
    ("spec", "ranges", "problem"),
    [
        (REQUIRE, "10.0.0.0/24", 'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not'),
        ({"ipFamilies": ["IPv6"]}, "10.0.0.0/24", 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on'),
        ({"clusterIPs": ["fd00::1"]}, "10.0.0.0/24", 'spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not'),
        ({"ipFamilies": ["IPv4", "IPv6"]}, BOTH, 'spec.ipFamilyPolicy: Invalid value: "SingleStack": must be \'Req'),
        ({"clusterIPs": ["10.0.0.9", "fd00::9"]}, BOTH, 'spec.ipFamilyPolicy: Invalid value: "SingleStack": must'),
        (PREFER | {"clusterIPs": ["10.0.0.9", "10.0.0.8"]}, BOTH, 'spec.ipFamilies: Invalid value: ["IPv4","IPv4'),
        (PREFER | {"clusterIPs": ["None", "10.0.0.8"]}, BOTH, "spec.clusterIPs[0]: Invalid value: \"None\": 'None'"),
        ({"clusterIPs": ["ten"]}, BOTH, 'spec.clusterIPs[0]: Invalid value: "ten": must be an IP address'),
        ({"ipFamilies": ["IPv6"], "clusterIPs": ["10.0.0.9"]}, BOTH, 'spec.clusterIPs[0]: Invalid value: "10.0.0.9"'),
        (
            PREFER | {"ipFamilies": ["IPv4", "IPv6", "IPv4"]},
            BOTH,
            'spec.ipFamilies: Invalid value: ["IPv4","IPv6","IPv4"]: may only',
        ),
    ],
)
def test_unavailable_families_are_reported(allot, spec: dict[str, Any], ranges: str, problem: str) -> None:
    _, problems = allot(spec, ranges=ranges)
    assert [found[: len(problem)] for found in problems] == [problem]


DUAL = {
    "type": "ClusterIP", "ipFamilies": ["IPv4", "IPv6"], "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9", "fd00::9"],
}  # fmt: skip
ALONE = {"type": "ClusterIP", "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}


@pytest.mark.parametrize(
    ("old", "new", "ranges", "families"),
    [
        (DUAL | REQUIRE, DUAL | SINGLE, BOTH, ["IPv4"]),
        (ALONE | SINGLE, ALONE | REQUIRE, BOTH, ["IPv4", "IPv6"]),
        (ALONE | SINGLE, ALONE | PREFER, BOTH, ["IPv4", "IPv6"]),
        (ALONE | PREFER, ALONE | PREFER, BOTH, ["IPv4"]),
        (DUAL | PREFER, DUAL | PREFER, "10.0.0.0/24", ["IPv4", "IPv6"]),
        (DUAL | PREFER, {"clusterIPs": DUAL["clusterIPs"]}, BOTH, ["IPv4", "IPv6"]),
    ],
)
async def test_update_changes_families_only_on_request(
    allot, store, old: dict[str, Any], new: dict[str, Any], ranges: str, families: list[str]
) -> None:
    for write in Allocations(store).writes("default/s", (), old["clusterIPs"]):
        await store.commit(write)
    given, problems = allot(new, old, ranges)
    assert problems == []
    assert given["ipFamilies"] == families
    assert len(given["clusterIPs"]) == len(families)
    assert given["clusterIPs"][0] == "10.0.0.9"


@pytest.mark.parametrize("field", ["clusterIPs", "ipFamilies"])
def test_secondary_address_is_not_released_implicitly(allot, field: str) -> None:
    new = DUAL | REQUIRE
    _, problems = allot(new | {field: new[field][:1]}, DUAL | REQUIRE, BOTH)
    assert len(problems) == 1
    assert "must be 'SingleStack' to release the secondary" in problems[0]
