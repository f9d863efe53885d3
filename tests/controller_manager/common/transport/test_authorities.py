"""CA files are reread while a client runs; an unusable file changes nothing."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controller_manager.common.serving.tls import make_ca
from controller_manager.common.transport.authorities import ServerAuthorities
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import Endpoint

OLD, NEW = (make_ca(name).certificate for name in ("old", "new"))


def opened(tmp_path: Path, registry: CollectorRegistry | None = None) -> tuple[Path, ServerAuthorities]:
    file = tmp_path / "ca.crt"
    file.write_bytes(OLD)
    return file, ServerAuthorities(Endpoint("https://x", OLD, ca_file=str(file)), TransportMetrics(registry))


@pytest.mark.virtual
async def test_changed_file_is_used_within_a_minute(tmp_path: Path) -> None:
    file, authorities = opened(tmp_path)
    file.write_bytes(NEW)
    await asyncio.sleep(59)
    assert not authorities.renewed()
    await asyncio.sleep(1)
    assert authorities.renewed()
    assert authorities.endpoint.ca == NEW
    await asyncio.sleep(60)
    assert not authorities.renewed()


@pytest.mark.virtual
async def test_distrusted_authorities_are_read_at_once(tmp_path: Path) -> None:
    file, authorities = opened(tmp_path)
    file.write_bytes(NEW)
    authorities.distrust()
    assert authorities.renewed()


@pytest.mark.virtual
@pytest.mark.parametrize("content", [None, b"", b"half of it"], ids=["missing", "empty", "no certificate"])
async def test_unusable_file_keeps_the_authorities_and_is_logged_once(tmp_path: Path, content: bytes | None) -> None:
    registry = CollectorRegistry()
    file, authorities = opened(tmp_path, registry)
    file.unlink() if content is None else file.write_bytes(content)
    with capture_logs() as lines:
        for _ in range(2):
            authorities.distrust()
            assert not authorities.renewed()
    assert authorities.endpoint.ca == OLD
    assert [line["log_level"] for line in lines] == ["warning"]
    reason = {None: "read_error", b"": "empty"}.get(content, "ca_parse_error")
    labels = {"result": "failure", "reason": reason}
    assert registry.get_sample_value("rest_client_transport_ca_reload_total", labels) == 2
    file.write_bytes(NEW)
    authorities.distrust()
    assert authorities.renewed()


@pytest.mark.virtual
async def test_authorities_without_a_file_are_never_read(tmp_path: Path) -> None:
    authorities = ServerAuthorities(Endpoint("https://x", OLD), TransportMetrics())
    authorities.distrust()
    await asyncio.sleep(3600)
    assert not authorities.renewed()
