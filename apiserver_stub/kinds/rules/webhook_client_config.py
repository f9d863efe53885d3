"""Validation of a webhook's `clientConfig`: its URL or service, and its CA bundle."""

import re
from base64 import b64decode
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
from cryptography.x509 import load_pem_x509_certificates

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
KNOWN_REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"


def check_place(config: Any, at: FieldPath, errors: ErrorList) -> None:
    """Report errors in the URL or service of a `clientConfig`."""
    url, service = config.get("url"), config.get("service")
    if url is not None and service is None:
        _url(url, (at, "url"), errors)
    elif url is None and service is not None:
        _service(service, (at, "service"), errors)
    else:
        errors.required(at, "exactly one of url or service is required")


def _url(text: str, at: FieldPath, errors: ErrorList) -> None:
    try:
        url = _parsed_url(text)
    except ValueError as error:
        errors.required(at, f"url must be a valid URL: parse {msgspec.json.encode(text).decode()}: {error}{_FORM}")
        return
    if url.scheme != "https":
        errors.invalid(at, url.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    user, marked, host = url.netloc.rpartition("@")
    if not host:
        errors.invalid(at, host, f"host must be specified{_FORM}")
    if marked:
        errors.invalid(at, user, "user information is not permitted in the URL")
    if url.fragment:
        errors.invalid(at, unquote(url.fragment), "fragments are not permitted in the URL")
    if url.query:
        errors.invalid(at, url.query, "query parameters are not permitted in the URL")


def _parsed_url(text: str) -> SplitResult:
    """Return the parts of a URL. Raises ValueError with Go's message."""
    if any(ord(mark) < 0x20 or ord(mark) == 0x7F for mark in text):
        raise ValueError("net/url: invalid control character in URL")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    if _ESCAPE.search(text):
        raise ValueError(f"invalid URL escape {msgspec.json.encode(_ESCAPE.findall(text)[0]).decode()}")
    url = urlsplit(text)
    if not url.scheme and ":" in text.partition("/")[0]:
        raise ValueError("first path segment in URL cannot contain colon")
    port = url.netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(f'invalid port ":{port}" after host')
    return url


def _service(service: Tree, at: FieldPath, errors: ErrorList) -> None:
    # Kubernetes swaps the two paths in its errors.
    for missing, field in (("namespace", "name"), ("name", "namespace")):
        if not service.get(missing):
            errors.required((at, field))
    if not 1 <= service.get("port", 0) <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        errors.invalid((at, "port"), service.get("port", 0), why)
    path, here = service.get("path", ""), (at, "path")
    if path in ("", "/"):
        return
    if path == "//":
        errors.invalid(here, path, "segment[0] may not be empty")
        return
    if not path.startswith("/"):
        errors.invalid(here, path, "must start with a '/'")
    for index, segment in enumerate(path[1:].removesuffix("/").split("/")):
        if not segment:
            errors.invalid(here, path, f"segment[{index}] may not be empty")
        elif why := names.subdomain(segment):
            errors.invalid(here, path, f"segment[{index}]: {why}")


def check_review_versions(versions: Any, at: FieldPath, errors: ErrorList, *, any_known: bool = True) -> None:
    """Report errors in the review versions of a webhook. With `any_known` this server must support one of them."""
    seen = set[str]()
    for index, version in enumerate(versions):
        if version in seen:
            errors.invalid((at, index), version, "duplicate version")
        elif why := names.old_label(version):
            errors.malformed((at, index), version, why)
        seen.add(version)
    if any_known and seen.isdisjoint(KNOWN_REVIEW_VERSIONS):
        errors.invalid(at, versions, f"must include at least one of {', '.join(KNOWN_REVIEW_VERSIONS)}")


def bundle_problem(config: Tree) -> str:
    """Return why the `caBundle` of a client configuration is invalid. Empty if it is valid or absent."""
    if not config.get("caBundle"):
        return ""
    try:
        load_pem_x509_certificates(b64decode(config["caBundle"]))
    except ValueError:
        return "unable to load root certificates: unable to parse bytes as PEM block"
    return ""
