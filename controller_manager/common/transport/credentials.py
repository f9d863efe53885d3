"""Credentials that are renewed before they expire, when files change, and when a server rejects them.

They come from values, from files, or from a credential plugin (KEP-541, `client.authentication.k8s.io`).
"""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.programs import TooMuchOutputError, run_program
from controller_manager.common.transport.config import ClientConfig, ClientIdentity, ExecPlugin
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import ConfigError, Credential, TransportError, is_of_tls

FILES_LAST = 60.0
_PAUSE_AFTER_FAILURE = 10.0
_PLUGIN_TIMEOUT = 60.0
_LONGEST_OUTPUT = 1 << 20  # bytes of a plugin's output


Obtain = Callable[[float], Awaitable[Credential]]
"""Obtains a credential; the argument is the wall time. Raises `ConfigError` if none is available."""
Exchange = Callable[[Request, Credential], Awaitable[Response]]


class Credentials:
    """Holds one credential and renews it. Concurrent requests wait for a single renewal."""

    def __init__(self, obtain: Obtain) -> None:
        self._obtain = obtain
        self._current: Credential | None = None
        self._obtaining: asyncio.Event | None = None

    async def current(self) -> Credential:
        """Return the current credential. Raises `ConfigError` if none is available."""
        while True:
            found = self._current
            if found is not None and (found.renew_at == math.inf or wall_seconds() < found.renew_at):
                return found
            if self._obtaining is not None:
                await self._obtaining.wait()
                continue
            return await self._renew()

    async def send(self, request: Request, exchange: Exchange) -> Response:
        """Return the response of `exchange` with the credential. After a 401 it retries once with a renewed credential.
        After a TLS error only the next request gets a renewed credential: the server may have processed this one.
        Raises `TransportError` if no credentials are available.
        """
        try:
            credential = await self.current()
            response = await self._exchange(request, credential, exchange)
            if response.status != 401:
                return response
            renewed = await self.after_refusal(credential)
            return response if renewed == credential else await exchange(request, renewed)
        except ConfigError as error:
            raise TransportError(str(error)) from error

    async def _exchange(self, request: Request, credential: Credential, exchange: Exchange) -> Response:
        try:
            return await exchange(request, credential)
        except TransportError as error:
            if is_of_tls(error):
                self._distrust(credential)
            raise

    async def after_refusal(self, refused: Credential) -> Credential:
        """Return the credential to use instead of a rejected one; it is equal if there is no other."""
        self._distrust(refused)
        return await self.current()

    def _distrust(self, refused: Credential) -> None:
        if self._current is refused:
            self._current = replace(refused, renew_at=-math.inf)

    async def _renew(self) -> Credential:
        """Return a new credential; it is used once even if its renewal is already due."""
        self._obtaining = done = asyncio.Event()
        try:
            found = await self._obtain(wall_seconds())
        except ConfigError as error:
            found = self._old_one_for_a_while(error)
        finally:
            self._obtaining = None
            done.set()
        self._current = found
        return found

    def _old_one_for_a_while(self, error: ConfigError) -> Credential:
        old, now = self._current, wall_seconds()
        if old is None or old.expires <= now:
            raise error
        get_logger("credentials").warning("failed to renew credentials; keeping the old ones", why=str(error))
        return replace(old, renew_at=min(now + _PAUSE_AFTER_FAILURE, old.expires))


def from_identity(identity: ClientIdentity) -> Obtain:
    """Return a function that reads the values and files of an identity without a plugin, at least once a minute."""

    async def obtain(now: float) -> Credential:
        return read_files(identity, now)

    return obtain


def read_files(identity: ClientIdentity, now: float) -> Credential:
    """Return the current credential of values and files. Raises `ConfigError` naming a file that cannot be read."""
    files = identity.token_file or identity.certificate_file or identity.key_file
    token = _read(identity.token_file, "tokenFile").decode("utf-8", "replace").strip() if identity.token_file else ""
    if identity.token_file and (not token or not token.isprintable()):
        raise ConfigError(f"tokenFile {identity.token_file} does not hold one line of text")
    return Credential(
        token=token or identity.token,
        certificate=_read(identity.certificate_file, "client-certificate") or identity.certificate,
        key=_read(identity.key_file, "client-key") or identity.key,
        renew_at=now + FILES_LAST if files else math.inf,
        impersonate=identity.impersonate,
    )


def _read(path: str, name: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} {path} can't be read: {error.strerror}") from error


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
    """Return a function that runs `plugin` each time a credential is needed."""

    async def obtain(now: float) -> Credential:
        found = read_output(plugin, await _run(plugin, _environment(config, plugin), metrics), now)
        metrics.certified(plugin.command, found.certificate)
        return replace(found, impersonate=config.identity.impersonate)

    return obtain


def read_output(plugin: ExecPlugin, output: bytes, now: float) -> Credential:
    """Return the credential that a plugin printed. Raises `ConfigError`, which never quotes the output."""
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
        ended = await run_program(
            (plugin.command, *plugin.args),
            seconds=_PLUGIN_TIMEOUT,
            longest=_LONGEST_OUTPUT,
            environment=environment,
            errors=None,
        )
    except TimeoutError:
        metrics.failed()
        raise ConfigError(f"{name} did not end within {_PLUGIN_TIMEOUT:g} seconds") from None
    except TooMuchOutputError:
        metrics.failed()
        raise ConfigError(f"{name} printed more than {_LONGEST_OUTPUT} bytes") from None
    except OSError as error:
        metrics.ran(1, found=False)
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise ConfigError(f"{name} can't be started: {error.strerror}{hint}") from error
    metrics.ran(ended.status)
    if ended.status:
        raise ConfigError(f"{name} failed with exit status {ended.status}")
    return ended.output


def _environment(config: ClientConfig, plugin: ExecPlugin) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = {
            "server": config.server,
            "tls-server-name": config.tls_server_name,
            "insecure-skip-tls-verify": config.insecure,
            "certificate-authority-data": config.ca,
            **({"proxy-url": config.proxy_url} if config.proxy_url else {}),
            **plugin.cluster_info,
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
