"""Labels that a node may set on itself: user labels, and known platform labels that describe the node.

Labels below `node-restriction.kubernetes.io` are reserved and cannot be set by nodes.
"""

from collections.abc import Iterable, Mapping

from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

_OUT_OF_REACH = f"node-restriction.{PLATFORM_DOMAIN}"
_OF_NODES = (f"kubelet.{PLATFORM_DOMAIN}", f"node.{PLATFORM_DOMAIN}")
_DESCRIPTIVE = frozenset(
    {
        *(f"{PLATFORM_DOMAIN}/{name}" for name in ("hostname", "os", "arch")),
        *(f"beta.{PLATFORM_DOMAIN}/{name}" for name in ("instance-type", "os", "arch")),
        *(f"topology.{PLATFORM_DOMAIN}/{name}" for name in ("zone", "region")),
        *(f"failure-domain.beta.{PLATFORM_DOMAIN}/{name}" for name in ("zone", "region")),
        f"node.{PLATFORM_DOMAIN}/instance-type",
    }
)


def changed(new: Mapping[str, str], old: Mapping[str, str]) -> set[str]:
    """Return the keys of labels that are added, removed, or of another value."""
    return {key for key, _ in new.items() ^ old.items()}


def forbidden_labels(keys: Iterable[str]) -> list[str]:
    """Return the keys that a node may not change, sorted."""
    return sorted(key for key in keys if _is_forbidden(key))


def _is_forbidden(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash:
        return False
    if _within(domain, _OUT_OF_REACH):
        return True
    of_platform = _within(domain, PLATFORM_DOMAIN) or _within(domain, GROUP_DOMAIN)
    return of_platform and key not in _DESCRIPTIVE and not any(_within(domain, one) for one in _OF_NODES)


def _within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")
