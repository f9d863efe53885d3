"""Credentials from a program (`client.authentication.k8s.io`): runs it and reads what it prints."""

import asyncio
import math
import os
from datetime import datetime
from typing import Any

import msgspec

from controller_manager.api.decode import Decoder
from controller_manager.api.model import Model
from controller_manager.api.timestamps import parse_time
from controller_manager.client.config import ClientConfig, ConfigError, ExecPlugin
from controller_manager.client.credentials import Credential, Obtain
from controller_manager.client.transport_metrics import TransportMetrics

_TIMEOUT = 60.0


class _Status(Model):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(Model):
    api_version: str
    kind: str
    status: _Status | None = None


_CREDENTIAL = Decoder(_ExecCredential)


def from_plugin(config: ClientConfig, plugin: ExecPlugin, metrics: TransportMetrics) -> Obtain:
    """Runs `plugin` each time a credential is needed."""

    async def obtain(now: float) -> Credential:
        found = read_output(plugin, await _run(plugin, _environment(config, plugin), metrics), now)
        metrics.certified(plugin.command, found.certificate)
        return found

    return obtain


def read_output(plugin: ExecPlugin, output: bytes, now: float) -> Credential:
    """The credential a plugin printed. Raises `ConfigError`, which never quotes the output."""
    name = f"exec plugin {plugin.command}"
    try:
        found = _CREDENTIAL.decode(output)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{name} printed no ExecCredential: {_without_value(error)}") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        raise ConfigError(f"{name} printed no ExecCredential of {plugin.api_version}")
    status = found.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{name} printed only one of status.clientCertificateData and status.clientKeyData")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{name} printed neither status.token nor status.clientCertificateData")
    if not status.token.isprintable():
        raise ConfigError(f"{name} printed a status.token that is not one line of text")
    return Credential.until(
        _expiry(name, status.expiration_timestamp),
        now,
        token=status.token,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
    )


async def _run(plugin: ExecPlugin, environment: dict[str, str], metrics: TransportMetrics) -> bytes:
    name = f"exec plugin {plugin.command}"
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        metrics.ran(1, found=False)
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise ConfigError(f"{name} can't be started: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(_TIMEOUT):
            output, _ = await process.communicate()
    except TimeoutError:
        metrics.failed()
        raise ConfigError(f"{name} did not end within {_TIMEOUT:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    metrics.ran(process.returncode or 0)
    if process.returncode:
        raise ConfigError(f"{name} failed with exit status {process.returncode}")
    return output


def _environment(config: ClientConfig, plugin: ExecPlugin) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = {
            "server": config.server,
            "tls-server-name": config.tls_server_name,
            "insecure-skip-tls-verify": config.insecure,
            "certificate-authority-data": config.ca,
        }
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(), **dict(plugin.env)}


def _expiry(name: str, text: str | None) -> float:
    if text is None:
        return math.inf
    try:
        moment: datetime = parse_time(text)
    except ValueError as error:
        raise ConfigError(f"{name} printed a status.expirationTimestamp that is no RFC 3339 time") from error
    return moment.timestamp()


def _without_value(error: msgspec.DecodeError) -> str:
    return str(error) if isinstance(error, msgspec.ValidationError) else "it is not JSON"
