"""EncryptionConfiguration (`apiserver.config.k8s.io/v1`): which resources are encrypted by which providers. Pure."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from apiserver_stub.common.config_file import ConfigDocument, ConfigModel, Seconds, parse_config, refuse_causes
from apiserver_stub.common.error_list import ErrorList, FieldPath
from controller_manager.common.api.platform import GROUP_DOMAIN

KIND = "EncryptionConfiguration"
_AES_KEYS = (16, 24, 32)  # bytes
_SECRETBOX_KEYS = (32,)
_NO_API = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
_NEVER_SHOWN = "REDACTED"
_ANY = "*"


class EncryptionKey(ConfigModel):
    """A key with its name, which prefixes data encrypted with it. The secret is base64."""

    name: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    @property
    def data(self) -> bytes:
        """The bytes of the key."""
        return b64decode(self.secret, validate=True)


class Keys(ConfigModel):
    """The keys of a provider: the first encrypts, all decrypt."""

    keys: tuple[EncryptionKey, ...] = ()


class Identity(ConfigModel):
    """The provider that does not encrypt."""


class KMS(ConfigModel):
    """A provider that calls a KMS plugin; `cachesize` is for version v1 only."""

    name: str = ""
    endpoint: str = ""
    api_version: str = "v1"
    timeout: Seconds = Seconds(3)
    cachesize: int | None = None


class Provider(ConfigModel):
    """A provider: exactly one field is set."""

    aescbc: Keys | None = None
    aesgcm: Keys | None = None
    secretbox: Keys | None = None
    identity: Identity | None = None
    kms: KMS | None = None


class ResourceConfiguration(ConfigModel):
    """Resources (`secrets`, `deployments.apps`, `*.apps`, `*.`, `*.*`) and their providers. All are tried in order to
    decrypt; the first one encrypts.
    """

    resources: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()


class EncryptionConfiguration(ConfigDocument):
    """The whole file."""

    resources: tuple[ResourceConfiguration, ...] = ()


def parse_encryption(data: bytes, path: Path) -> EncryptionConfiguration:
    """Return the configuration in a file's bytes. Raises `ConfigFileError` with all problems."""
    found = parse_config(data, path, KIND, {f"apiserver.config.{GROUP_DOMAIN}/v1": EncryptionConfiguration})
    errors = ErrorList()
    _judge(found, errors)
    refuse_causes(path, errors.causes)
    return found


def split_resource(text: str) -> tuple[str, str]:
    """Return the group and resource of `plural.group`. Without a dot, the group is the core group (empty)."""
    resource, _, group = text.partition(".")
    return group, resource


def masks(earlier: tuple[str, str], later: tuple[str, str]) -> bool:
    """Return whether a rule for `earlier` (group, resource) hides one for `later`."""
    return earlier == (_ANY, _ANY) or earlier == (later[0], _ANY)


def _judge(found: EncryptionConfiguration, errors: ErrorList) -> None:
    if not found.resources:
        errors.required((None, "resources"), "at least one resources is required")
    names: set[str] = set()
    before: list[tuple[str, str]] = []
    for at, each in enumerate(found.resources):
        here: FieldPath = ((None, "resources"), at)
        _judge_resources(each.resources, (here, "resources"), errors)
        for name in map(split_resource, each.resources):
            if any(masks(earlier, name) for earlier in before):
                errors.invalid((here, "resources"), list(each.resources), "is masked by an earlier rule")
        before += map(split_resource, each.resources)
        if not each.providers:
            errors.required((here, "providers"), "at least one provider is required")
        for place, provider in enumerate(each.providers):
            _judge_provider(provider, ((here, "providers"), place), names, errors)


def _judge_resources(resources: Sequence[str], here: FieldPath, errors: ErrorList) -> None:
    if not resources:
        errors.required(here, "at least one resource is required")
    if len(set(resources)) < len(resources):
        errors.invalid(here, list(resources), "names a resource twice")
    pairs = combinations(set(map(split_resource, resources)), 2)
    if any(masks(one, other) or masks(other, one) for one, other in pairs):
        errors.invalid(here, list(resources), "has resources that others of the same list mask")
    for at, name in enumerate(resources):
        if problem := _problem(name):
            errors.invalid((here, at), name, problem)


def _problem(name: str) -> str:
    """Return why a resource of that name cannot be encrypted; empty if it can."""
    group, resource = split_resource(name)
    rules: Sequence[tuple[bool, str]] = (
        (name != name.lower(), "must not contain capital letters"),
        (name == _ANY, "use '*.' for all resources of the core group, or '*.*' for all there are"),
        (name in _NO_API, "is not served by the API, and cannot be encrypted"),
        (group == f"events.{GROUP_DOMAIN}", "events are stored in the core group: use 'events'"),
        (group == "extensions", "the group extensions is not served any more"),
        (group == _ANY and resource != _ANY, "one resource cannot be named in all groups"),
    )
    return next((problem for holds, problem in rules if holds), "")


def _judge_provider(provider: Provider, here: FieldPath, names: set[str], errors: ErrorList) -> None:
    given = [name for name in Provider.__struct_fields__ if getattr(provider, name) is not None]
    if len(given) != 1:
        wrong = "has several providers, which belong into items of their own" if given else "has no provider"
        errors.invalid(here, given, f"{wrong}: aescbc, aesgcm, secretbox, identity or kms")
        return
    if provider.kms is not None:
        _judge_kms(provider.kms, (here, "kms"), names, errors)
        names.add(provider.kms.name)
    for keys, sizes in (
        (provider.aescbc, _AES_KEYS),
        (provider.aesgcm, _AES_KEYS),
        (provider.secretbox, _SECRETBOX_KEYS),
    ):
        if keys is not None:
            _judge_keys(keys, sizes, ((here, given[0]), "keys"), errors)


def _judge_keys(keys: Keys, sizes: Sequence[int], here: FieldPath, errors: ErrorList) -> None:
    if not keys.keys:
        errors.required(here, "at least one key is required")
    for at, key in enumerate(keys.keys):
        if not key.name:
            errors.required(((here, at), "name"), "a key must have a name")
        if not key.secret:
            errors.required(((here, at), "secret"), "a key must have a secret")
            continue
        try:
            length = len(key.data)
        except (binascii.Error, ValueError):
            errors.invalid(((here, at), "secret"), _NEVER_SHOWN, "must be base64")
            continue
        if length not in sizes:
            wanted = " or ".join(map(str, sizes))
            errors.invalid(((here, at), "secret"), _NEVER_SHOWN, f"must be {wanted} bytes long, got {length}")


def _judge_kms(kms: KMS, here: FieldPath, names: set[str], errors: ErrorList) -> None:
    rules: Sequence[tuple[str, object, Callable[[], bool], str]] = (
        ("name", kms.name, lambda: ":" in kms.name, "must not contain ':'"),
        ("name", kms.name, lambda: kms.name in names, "is the name of another KMS provider"),
        ("timeout", f"{kms.timeout:g}s", lambda: kms.timeout <= 0, "must be positive"),
        ("endpoint", kms.endpoint, lambda: not kms.endpoint, "must be set"),
        ("endpoint", kms.endpoint, lambda: bool(kms.endpoint) and not _is_socket(kms.endpoint), "must be unix:///path"),
        ("cachesize", kms.cachesize, lambda: kms.api_version != "v1" and kms.cachesize is not None, "is of v1 only"),
        ("apiVersion", kms.api_version, lambda: kms.api_version not in ("v1", "v2"), "must be v2"),
        ("apiVersion", kms.api_version, lambda: kms.api_version == "v1", "KMS v1 is not served any more: use v2"),
    )
    if not kms.name:
        errors.required((here, "name"), "a KMS provider must have a name")
    for field, value, is_broken, why in rules:
        if is_broken():
            errors.invalid((here, field), value, why)


def _is_socket(endpoint: str) -> bool:
    try:
        return urlsplit(endpoint).scheme == "unix"
    except ValueError:
        return False
