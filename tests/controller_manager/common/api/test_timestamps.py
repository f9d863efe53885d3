"""API timestamps and zero times."""

from datetime import UTC, datetime

import pytest

from controller_manager.common.api.coordination import Lease
from controller_manager.common.api.timestamps import nonzero_time, time_of
from controller_manager.framework.leader.lease import held, read

ZERO = "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("none", [None, "", ZERO, "0001-01-01T00:00:00.000000Z"])
def test_zero_time_reads_as_empty(none: str | None) -> None:
    assert nonzero_time(none) == ""
    assert time_of(none) is None


def test_time_parses_to_datetime() -> None:
    assert nonzero_time("2026-01-02T03:04:05Z") == "2026-01-02T03:04:05Z"
    assert time_of("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with pytest.raises(ValueError, match="isoformat"):
        time_of("no time")


@pytest.mark.parametrize("none", ["null", f'"{ZERO}"'])
def test_lease_without_renew_time_has_no_former_holder(none: str) -> None:
    lease = Lease.decode(f'{{"spec":{{"renewTime":{none},"acquireTime":{none},"holderIdentity":null}}}}'.encode())
    assert (read(lease).renewed, read(lease).acquired) == ("", "")
    assert held(lease, "me", 15, datetime(2026, 1, 1, tzinfo=UTC)).spec.lease_transitions == 0
