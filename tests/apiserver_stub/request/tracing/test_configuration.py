"""Tracing configuration files: valid ones, and errors."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.request.tracing.configuration import read_tracing


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"samplingRatePerMillion": -1}, ["samplingRatePerMillion: Invalid value: -1"]),
        ({"samplingRatePerMillion": 1_000_001}, ["samplingRatePerMillion: Invalid value"]),
        ({"samplingRatePerMillion": "all"}, ["samplingRatePerMillion"]),
        ({"samplingRatePerMillion": 1 << 40}, ["samplingRatePerMillion"]),
        ({"endpoint": "http://localhost:4317"}, ['endpoint: Invalid value: "http://localhost:4317"']),
        ({"endpoint": "dns://[::1"}, ["endpoint: Invalid value"]),
        ({"endpoint": "a://b", "samplingRatePerMillion": -5}, ["endpoint: Invalid", "samplingRatePerMillion: Invalid"]),
        ({"endpont": "a"}, ["endpont"]),
    ],
)
def test_invalid_fields_are_reported(write: Callable[..., str], fields: dict[str, object], messages: list[str]) -> None:
    with pytest.raises(ConfigFileError) as caught:
        read_tracing(Path(write(**fields)))
    assert all(one in str(caught.value) for one in messages)


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        (None, "localhost:4317"),
        ("", "localhost:4317"),
        ("collector:4317", "collector:4317"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("dns:///collector:4317", "collector:4317"),
        ("dns://8.8.8.8/collector:4317", "collector:4317"),
        ("unix:///run/c.sock", "unix:/run/c.sock"),
        ("unix-abstract://c", "unix-abstract:c"),
    ],
)
@pytest.mark.parametrize(
    "version", ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"]
)
def test_endpoint_is_parsed(write: Callable[..., str], endpoint: str | None, target: str, version: str) -> None:
    fields = {} if endpoint is None else {"endpoint": endpoint}
    assert read_tracing(Path(write(version, **fields))).target == target


def test_sdk_is_imported_only_if_configured(
    write: Callable[..., str],
) -> None:
    script = (
        "import sys, apiserver_stub.process.build\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('opentelemetry', 'grpc', 'google')])\n"
        "sys.modules['opentelemetry'] = None\n"
        "from apiserver_stub.request.tracing import request_tracer\n"
        "from controller_manager.common.base.log import get_logger\n"
        f"try: request_tracer({write()!r}, None, get_logger('x'))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.startswith("[]\nConfigError traces need the OpenTelemetry SDK")
