"""Validation of the Windows options of security contexts and of pods with HostProcess containers."""

import re
from collections.abc import Iterator
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import form, record
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in

_LONGEST_CREDENTIALS = 64 * 1024
_LONGEST_DOMAIN, _LONGEST_USER = 255, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)
_NOT_IN_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_OPTIONS = ("securityContext", "windowsOptions", "hostProcess")


def _credentials(text: Any, at: FieldPath, errors: ErrorList) -> None:
    if not text:
        errors.invalid(at, text, "must not be empty")
    elif len(text.encode()) > _LONGEST_CREDENTIALS:
        errors.invalid(at, text, f"must have at most {_LONGEST_CREDENTIALS} bytes")


def _user_name(text: Any, at: FieldPath, errors: ErrorList) -> None:
    for why in _problems(text):
        errors.invalid(at, text, why)


def _problems(text: str) -> Iterator[str]:
    """Yield errors in a user name with an optional domain before a backslash."""
    domain, slash, user = text.rpartition("\\")
    if not text:
        yield "must not be empty"
    elif _CONTROL.search(text):
        yield "must not have control characters"
    elif "\\" in domain:
        yield "must not have more than one backslash"
    else:
        if len(domain.encode()) > _LONGEST_DOMAIN:
            yield f"the domain must have at most {_LONGEST_DOMAIN} bytes"
        if slash and not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
            yield "the domain must be a NetBIOS or DNS name"
        if not user:
            yield "the user must not be empty"
        elif len(user.encode()) > _LONGEST_USER:
            yield f"the user must have at most {_LONGEST_USER} bytes"
        if user and not user.strip(". "):
            yield "the user must not consist of periods and spaces"
        if _NOT_IN_USERS.search(user):
            yield 'the user must not have any of the characters "/\\[]:;|=,+*?<>@'


WINDOWS_OPTIONS = record({
    "gmsaCredentialSpecName": form(names.subdomain), "gmsaCredentialSpec": _credentials, "runAsUserName": _user_name,
})  # fmt: skip


def host_processes(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that all or no containers of a pod are HostProcess containers, and that these use the host network."""
    of_pod = get_in(spec, _OPTIONS)
    found = set()
    for name in _CONTAINERS:
        for index, container in enumerate(spec.get(name) or ()):
            own = get_in(container, _OPTIONS)
            if own is not None and of_pod is not None and own != of_pod:
                where = (((((at, name), index), _OPTIONS[0]), _OPTIONS[1]), _OPTIONS[2])
                errors.invalid(where, own, "must be that of the pod")
            found.add(bool(of_pod if own is None else own))
    if True not in found:
        return
    if False in found:
        errors.invalid(at, "", "all containers must be hostProcess containers if one is")
    if not spec.get("hostNetwork"):
        errors.invalid((at, "hostNetwork"), False, "must be true for hostProcess containers")
