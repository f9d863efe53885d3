"""Warnings that several kinds share: fractional byte quantities, node labels, addresses."""

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from types import MappingProxyType
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from apiserver_stub.common.error_list import FieldPath, place, render
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.names import is_usual_address, is_usual_range
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree


def warning_at(at: FieldPath, text: str) -> str:
    """Return a warning with its field path."""
    return f"{render(at)}: {text}"


def annotation(tree: Tree, name: str) -> Any:
    """Return an annotation of an object or a template, or None."""
    return (tree.get("metadata", {}).get("annotations") or {}).get(name)


def fractional(amounts: Any, names: tuple[str, ...], at: FieldPath) -> list[str]:
    """Return warnings for byte quantities that are not whole numbers."""
    if not amounts:
        return []
    return [
        warning_at((at, f"[{name}]"), f"{amounts[name]} is a fraction of a byte; use a whole number")
        for name in names
        if name in amounts and _is_fraction(amounts[name])
    ]


def _is_fraction(text: str) -> bool:
    # Quantities with one of these endings are never fractional, and most have one.
    return text.endswith(("m", "u", "n")) and parse(text).number % 1 != 0


_INSTEAD: Mapping[str, str] = MappingProxyType({
    "beta.kubernetes.io/arch": 'deprecated since v1.14: use "kubernetes.io/arch"',
    "beta.kubernetes.io/os": 'deprecated since v1.14: use "kubernetes.io/os"',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17: use "topology.kubernetes.io/region"',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17: use "topology.kubernetes.io/zone"',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17: use "node.kubernetes.io/instance-type"',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22: use taints and tolerations",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane"',
})  # fmt: skip


def of_label(name: str, at: FieldPath) -> list[str]:
    """Return warnings for a deprecated label name."""
    return [warning_at(at, f"{name} is {_INSTEAD[name]}")] if name in _INSTEAD else []


def of_labels(labels: Any, at: FieldPath) -> list[str]:
    """Return warnings for the keys of a map of labels."""
    return [text for name in labels or () if name in _INSTEAD for text in of_label(name, (at, f"[{name}]"))]


def of_expressions(expressions: Any, at: FieldPath) -> list[str]:
    """Return warnings for the keys of selector requirements."""
    messages = []
    for index, expression in enumerate(expressions or ()):
        messages += of_label(expression.get("key", ""), (((at, "matchExpressions"), index), "key"))
    return messages


def of_term(term: Any, at: FieldPath, *, preferred: bool = False) -> list[str]:
    """Return warnings for a node selector term. Values that no label can have count only if it is `preferred`."""
    messages = of_expressions(term.get("matchExpressions"), at)
    for index, expression in enumerate(term.get("matchExpressions") or () if preferred else ()):
        for number, value in enumerate(expression.get("values") or ()):
            if why := names.label_value(value):
                messages.append(warning_at((((((at, "matchExpressions"), index), "values"), number)), why))
    return messages


def of_affinity(affinity: Any, at: FieldPath) -> list[str]:
    """Return warnings for the node affinity of a pod."""
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    messages = []
    for index, term in enumerate((affinity.get(required) or {}).get("nodeSelectorTerms") or ()):
        messages += of_term(term, (((at, required), "nodeSelectorTerms"), index))
    for index, weighted in enumerate(affinity.get(preferred) or ()):
        messages += of_term(weighted.get("preference") or {}, (((at, preferred), index), "preference"), preferred=True)
    return messages


MOST_ADDRESSES = 200
"""The maximum number of addresses checked per list. More warnings would not fit."""


def of_address(text: str, at: FieldPath) -> list[str]:
    """Return warnings for an IP address that is not in canonical form."""
    if is_usual_address(text):
        return []
    try:
        found = ip_address(_plain(text))
    except ValueError:
        return []
    usual = str(_unmapped(found))
    if usual == text:
        return []
    if isinstance(found, IPv4Address) or found.ipv4_mapped:
        return [warning_at(at, f'non-standard IP address "{text}": use "{usual}"')]
    return [warning_at(at, f'the canonical form (RFC 5952) of the IPv6 address "{text}" is "{usual}"')]


def of_range(text: str, at: FieldPath) -> list[str]:
    """Return warnings for an address range that is not in canonical form or has host bits set."""
    if is_usual_range(text):
        return []
    address, _, length = text.partition("/")
    try:
        found = ip_interface(f"{_plain(address)}/{length.lstrip('0') or '0'}")
    except ValueError:
        return []
    whole, messages = found.network, []
    if found.ip != whole.network_address:
        single = f"{found.ip}/{found.ip.max_prefixlen}"
        messages.append(warning_at(at, f'ambiguous CIDR "{text}": use "{whole}" or "{single}"'))
    if _plain(address) != address or length != str(whole.prefixlen) or _unmapped(found.ip) != found.ip:
        messages.append(warning_at(at, f'non-standard CIDR "{text}": use "{whole}"'))
    if not messages and text != str(whole):
        messages.append(warning_at(at, f'the canonical form (RFC 5952) of the IPv6 CIDR "{text}" is "{whole}"'))
    return messages


def _plain(address: str) -> str:
    """Return an address without leading zeros in IPv4 numbers and without surrounding spaces."""
    if ":" in address:
        return address
    return ".".join(part.lstrip("0") or "0" for part in address.split("."))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


# Warnings for secrets whose certificate and key do not match.

_TLS = "kubernetes.io/tls"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_LARGEST = 64 * 1024  # larger chains and keys are not checked


def of_secret(secret: Tree, old: Tree | None) -> list[str]:
    """Return warnings for a TLS key pair that no server can use."""
    if secret.get("type") != _TLS or (old is not None and old.get("data") == secret.get("data")):
        return []
    data = secret.get("data") or {}
    why = _mismatch(data.get(_CERTIFICATE, ""), data.get(_KEY, ""))
    return [warning_at(place("data"), why)] if why else []


def _mismatch(certificate: str, key: str) -> str:
    if max(len(certificate), len(key)) > _LARGEST:
        return ""
    try:
        ours = load_pem_x509_certificate(a2b_base64(certificate)).public_key()
    except (ValueError, Base64Error, UnsupportedAlgorithm):
        return f"{_CERTIFICATE} has no certificate in PEM"
    try:
        # Only check that key and certificate match. A full check of the key takes many milliseconds.
        private = load_pem_private_key(a2b_base64(key), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, Base64Error, UnsupportedAlgorithm):
        return f"{_KEY} has no private key in PEM"
    return "" if _bytes(private.public_key()) == _bytes(ours) else f"{_KEY} is not the key of {_CERTIFICATE}"


def _bytes(key: Any) -> bytes:
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
