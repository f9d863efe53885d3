"""Levels and versions of the Pod Security Standards, and the policy of a namespace from its labels and the plugin
configuration (`pod-security.admission.config.k8s.io/v1`) (KEP-2579).
"""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from apiserver_stub.common.config_file import ConfigDocument, ConfigModel
from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.values import names
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

Level = Literal["privileged", "baseline", "restricted"]

LEVELS: tuple[Level, ...] = ("privileged", "baseline", "restricted")
"""From the most lenient to the strictest."""
LATEST = "latest"
PREFIX = f"pod-security.{PLATFORM_DOMAIN}/"
"""Prefix of namespace labels and audit annotations."""
KIND = "PodSecurityConfiguration"
API_VERSIONS = tuple(
    f"pod-security.admission.config.{GROUP_DOMAIN}/{version}" for version in ("v1", "v1beta1", "v1alpha1")
)
_MODES = ("enforce", "audit", "warn")
_KEYS = tuple(f"{PREFIX}{mode}{part}" for mode in _MODES for part in ("", "-version"))
_KEY_SET = frozenset(_KEYS)
_LABELS: FieldPath = ((None, "metadata"), "labels")
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)")
_NO_LEVEL = f"must be one of {', '.join(LEVELS)}"
_NO_VERSION = 'must be "latest" or "v1.x"'
_MOST_REMEMBERED = 1024  # policies


class LevelVersion(NamedTuple):
    """A level in a version: `latest`, or `v1.<minor>`."""

    level: Level = "privileged"
    version: str = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def minor(self) -> int:
        """Return the minor of the version; no version is later than the latest."""
        return minor_of(self.version) or 0

    def is_like(self, other: "LevelVersion") -> bool:
        """Return whether both have the same requirements."""
        return self == other or self.level == other.level == "privileged"


class Policy(NamedTuple):
    """The enforced, audited and warned levels of a namespace."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def is_privileged(self) -> bool:
        """Return whether there are no requirements."""
        return self.enforce.level == self.audit.level == self.warn.level == "privileged"

    def is_like(self, other: "Policy") -> bool:
        """Return whether both have the same requirements."""
        return all(mine.is_like(its) for mine, its in zip(self, other, strict=True))


class Found(NamedTuple):
    """The policy of a namespace and the errors of its labels."""

    policy: Policy
    problems: tuple[Cause, ...] = ()


PRIVILEGED = Found(Policy())
"""The policy of a namespace without labels or defaults."""


def minor_of(version: str) -> int | None:
    """Return the minor version; None if `version` is invalid."""
    if version == LATEST:
        return sys.maxsize
    matched = _VERSION.fullmatch(version)
    return int(matched[1]) if matched and len(matched[1]) < 20 and int(matched[1]) <= sys.maxsize else None


def is_stricter(level: Level, other: Level) -> bool:
    """Return whether a level allows less than another."""
    return LEVELS.index(level) > LEVELS.index(other)


def policy_of(labels: Mapping[str, str], default: Found) -> Found:
    """Return the policy of a namespace with these labels. An invalid level or version to enforce becomes `restricted`
    or `latest`; one to audit or warn becomes `privileged`.
    """
    if _KEY_SET.isdisjoint(labels):
        return default
    return _parsed(tuple(map(labels.get, _KEYS)), default.policy)


@lru_cache(_MOST_REMEMBERED)
def _parsed(values: tuple[str | None, ...], defaults: Policy) -> Found:
    errors, policy, labels = ErrorList(), defaults, dict(zip(_KEYS, values, strict=True))
    for mode in _MODES:
        found: LevelVersion = getattr(policy, mode)
        if (text := labels[f"{PREFIX}{mode}"]) is not None:
            level = _level(text)
            if level is None:
                errors.invalid((_LABELS, f"[{PREFIX}{mode}]"), text, _NO_LEVEL)
                level = "restricted" if mode == "enforce" else "privileged"
            found = found._replace(level=level)
        if (text := labels[f"{PREFIX}{mode}-version"]) is not None:
            if minor_of(text) is None:
                errors.invalid((_LABELS, f"[{PREFIX}{mode}-version]"), text, _NO_VERSION)
                text = LATEST
            found = found._replace(version=text)
        policy = policy._replace(**{mode: found})
    return Found(_warned(policy, labels), tuple(errors.causes))


def _warned(policy: Policy, labels: Mapping[str, str | None]) -> Policy:
    """Return the policy with warnings at the enforced level, if the enforce label is set and the warn label is not."""
    enforce, warn = policy.enforce, policy.warn
    if labels[f"{PREFIX}warn"] is not None or _level(labels[f"{PREFIX}enforce"]) is None:
        return policy
    if not is_stricter(enforce.level, warn.level):
        return policy
    version = enforce.version if labels[f"{PREFIX}warn-version"] is None else warn.version
    return policy._replace(warn=LevelVersion(enforce.level, version))


def _level(text: str | None) -> Level | None:
    return next((level for level in LEVELS if level == text), None)


def described(policy: Policy, labels: Mapping[str, str]) -> str:
    """Return the policy of a namespace for messages: the modes set by labels that are not privileged."""
    modes = [
        f"{mode}={chosen}"
        for mode, chosen in zip(_MODES, policy, strict=True)
        if chosen.level != "privileged" and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
    ]
    return ", ".join(modes)


class PodSecurityDefaults(ConfigModel):
    """The policy of namespaces without labels; empty values mean the built-in default."""

    enforce: str = ""
    enforce_version: str = msgspec.field(default="", name="enforce-version")
    audit: str = ""
    audit_version: str = msgspec.field(default="", name="audit-version")
    warn: str = ""
    warn_version: str = msgspec.field(default="", name="warn-version")

    def policy(self) -> Policy:
        """Return the policy; the values must be valid."""
        return Policy(
            *(
                LevelVersion(_level(level) or "privileged", version or LATEST)
                for level, version in (
                    (self.enforce, self.enforce_version),
                    (self.audit, self.audit_version),
                    (self.warn, self.warn_version),
                )
            )
        )


class PodSecurityExemptions(ConfigModel):
    """Requests that are not checked: of users, of pods with runtime classes, in namespaces."""

    usernames: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()


class PodSecurityConfiguration(ConfigDocument):
    """The document that configures the plugin."""

    api_version: str = API_VERSIONS[0]
    kind: str = KIND
    defaults: PodSecurityDefaults = PodSecurityDefaults()
    exemptions: PodSecurityExemptions = PodSecurityExemptions()


CONFIGURATION_TYPES = dict.fromkeys(API_VERSIONS, PodSecurityConfiguration)
"""By API version."""


def check(configuration: PodSecurityConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors, defaults, exemptions = ErrorList(), configuration.defaults, configuration.exemptions
    for mode in ("enforce", "warn", "audit"):
        level, version = getattr(defaults, mode), getattr(defaults, f"{mode}_version")
        if level and _level(level) is None:
            errors.invalid(((None, "defaults"), mode), level, _NO_LEVEL)
        if version and minor_of(version) is None:
            errors.invalid(((None, "defaults"), f"{mode}-version"), version, _NO_VERSION)
    for field, values, problem in (
        ("namespaces", exemptions.namespaces, names.label),
        ("runtimeClasses", exemptions.runtime_classes, names.subdomain),
        ("usernames", exemptions.usernames, lambda name: "" if name else "username must not be empty"),
    ):
        at: FieldPath = ((None, "exemptions"), field)
        for index, value, is_repeated in _numbered(values):
            if why := problem(value):
                errors.invalid((at, index), value, why)
            elif is_repeated:
                errors.duplicate((at, index), value)
    return errors


def _numbered(values: tuple[str, ...]) -> Iterator[tuple[int, str, bool]]:
    """Yield each value with its index, and whether it was there before."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        yield index, value, value in seen
        seen.add(value)
