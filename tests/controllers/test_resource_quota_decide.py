"""Status of a ResourceQuota from counted usage."""

from collections.abc import Mapping

import pytest

from controller_manager.common.api.core import ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus
from controller_manager.common.api.pod_resources import parsed
from controllers.resource_quota.controller import Count, decide

Amounts = Mapping[str, str]
HARD = {"pods": "3", "secrets": "2"}

# Former status, counted objects, unreadable kinds, whether all kinds are known; then the new status.
CASES: dict[str, tuple[tuple[Amounts, Amounts], Amounts, set[str], bool, tuple[Amounts, Amounts]]] = {
    "first count": (({}, {}), {"pods": "1", "secrets": "0"}, set(), True, (HARD, {"pods": "1", "secrets": "0"})),
    "first count, one kind unreadable": (({}, {}), {"pods": "1"}, {"secrets"}, True, ({"pods": "3"}, {"pods": "1"})),
    "first count, all kinds unreadable": (({}, {}), {}, {"pods", "secrets"}, True, ({}, {})),
    "first count, kinds not known": (({}, {}), {"pods": "1"}, set(), False, ({"pods": "3"}, {"pods": "1"})),
    "first count, no such kind": (({}, {}), {"pods": "1"}, set(), True, (HARD, {"pods": "1"})),
    "later count, unreadable": (
        (HARD, {"pods": "1", "secrets": "1"}), {"pods": "2"}, {"secrets"}, True, (HARD, {"pods": "2", "secrets": "1"}),
    ),
    "the kind was removed": (
        (HARD, {"pods": "1", "secrets": "1"}), {"pods": "1"}, set(), True, (HARD, {"pods": "1", "secrets": "0"}),
    ),
    "changed limit, unreadable": (
        ({"pods": "5"}, {"pods": "1"}), {}, {"pods", "secrets"}, True, ({"pods": "3"}, {"pods": "1"}),
    ),
    "a limit without usage stays": (
        (HARD, {"pods": "1"}), {"pods": "1"}, {"secrets"}, True, (HARD, {"pods": "1"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_status_shows_limits_whose_use_is_known(name: str) -> None:
    (hard, used), counted, unread, is_complete, expected = CASES[name]
    before = ResourceQuotaStatus(hard=hard, used=used) if hard else ResourceQuotaStatus()
    quota = ResourceQuota(spec=ResourceQuotaSpec(hard=HARD), status=before)
    status = decide(quota, Count(parsed(counted), frozenset(unread), is_complete=is_complete))
    assert (dict(status.hard or {}), dict(status.used or {})) == expected
    if expected == (hard, used):
        assert status is before
