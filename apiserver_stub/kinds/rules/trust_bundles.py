"""Validation of ClusterTrustBundles (KEP-3257)."""

from collections.abc import Iterator
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import BasicConstraints, ExtensionNotFound, load_der_x509_certificate

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.certificates import signer_name
from apiserver_stub.kinds.rules.combine import KindRules, changes, fixed, form, if_any, within
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.pem import Block, blocks
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_LARGEST = 1024 * 1024  # bytes
_ANCHORS, _NAME = place("spec.trustBundle"), place("metadata.name")
_OMITTED = "<value omitted>"


def _name(bundle: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check that the name of a bundle starts with its signer: `example.com:signer:anything`."""
    name, signer = get_in(bundle, ("metadata", "name")) or "", get_in(bundle, ("spec", "signerName")) or ""
    prefix = signer.replace("/", ":") + ":" if signer else ""
    if not signer and ":" in name:
        why = 'ClusterTrustBundle without signer name must not have ":" in its name'
    elif not name.startswith(prefix):
        why = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
    else:
        why = names.subdomain(name.removeprefix(prefix))
    if why:
        errors.malformed(_NAME, name, why)


def _anchors(text: str, errors: ErrorList) -> None:
    """Check that there is at least one CA certificate and no duplicate."""
    if len(text) > _LARGEST or len(text.encode()) > _LARGEST:
        errors.too_long(_ANCHORS, _LARGEST)
        return
    found = list(blocks(text.encode()))
    problems = [why for index, block in enumerate(found) if (why := _anchor_problem(index, block))]
    for why in problems or _duplicates(found):
        errors.invalid(_ANCHORS, _OMITTED, why)


def _duplicates(found: list[Block]) -> Iterator[str]:
    places: dict[bytes, list[int]] = {}
    for index, block in enumerate(found):
        places.setdefault(block.content, []).append(index)
    if not places:
        yield "at least one trust anchor must be provided"
    for indices in places.values():
        if len(indices) > 1:
            yield f"duplicate trust anchor (indices [{' '.join(map(str, indices))}])"


def _anchor_problem(index: int, block: Block) -> str:
    if block.type != "CERTIFICATE":
        return f"entry {index} has bad block type: {block.type}"
    if block.has_headers:
        return f"entry {index} has PEM block headers"
    try:
        extensions = load_der_x509_certificate(block.content).extensions
        is_authority = extensions.get_extension_for_class(BasicConstraints).value.ca
    except ExtensionNotFound:
        is_authority = False
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return f"entry {index} does not parse as X.509"
    return "" if is_authority else f"entry {index} does not have the CA bit set"


def _new_anchors(bundle: Any, _at: FieldPath, errors: ErrorList) -> None:
    _anchors(get_in(bundle, ("spec", "trustBundle")) or "", errors)


def _changed_anchors(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check changed trust anchors only. What the server accepts may change over time."""
    text = get_in(new, ("spec", "trustBundle")) or ""
    if text != get_in(old, ("spec", "trustBundle")):
        _anchors(text, errors)


def _body(bundle: Any, at: FieldPath, errors: ErrorList) -> None:
    _name(bundle, at, errors)
    within("spec.signerName", if_any(form(signer_name)))(bundle, at, errors)


_BUNDLE = KindRules(
    _body, changes(_changed_anchors, fixed("spec.signerName")), name=names.path_segment, on_create=_new_anchors,
    by_schema=False,
)  # fmt: skip
RULES = {f"certificates.k8s.io/{version}/ClusterTrustBundle": _BUNDLE for version in ("v1alpha1", "v1beta1")}
