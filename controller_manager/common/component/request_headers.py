"""Flags for authenticating proxies, which name the user in request headers."""

from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import model_validator

from controller_manager.common.component.features import FeatureOptions
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Parsed
from controller_manager.common.options.types import StringList

REQUEST_HEADER_NAMES: Mapping[str, str] = {
    "allowed_names": "requestheader-allowed-names",
    "username_headers": "requestheader-username-headers",
    "uid_headers": "requestheader-uid-headers",
    "group_headers": "requestheader-group-headers",
    "extra_prefixes": "requestheader-extra-headers-prefix",
}
"""The fields of `RequestHeaderConfig`: names of the flags, and keys of the published ConfigMap."""

REMOTE_UID = "RemoteRequestHeaderUID"
"""The feature gate for uid headers."""


class RequestHeaderOptions(Options):
    """The CAs of proxies, their names, and their headers."""

    requestheader_client_ca_file: str = flag(
        "",
        "file of the authorities of proxies, which say in headers for whom they speak",
        metavar="file",
    )
    requestheader_allowed_names: StringList = flag(
        (), "common names of client certificates of allowed proxies; if empty, any certificate of the CA is allowed"
    )
    requestheader_username_headers: StringList = flag(
        ("x-remote-user",), "request headers for the user name; the first one present is used"
    )
    requestheader_uid_headers: StringList = flag(
        (),
        "headers in which a proxy says the user's uid, X-Remote-Uid among them; needs the feature gate "
        "RemoteRequestHeaderUID",
    )
    requestheader_group_headers: StringList = flag(
        ("x-remote-group",), "request headers for the user's groups, one header line per group"
    )
    requestheader_extra_headers_prefix: StringList = flag(
        ("x-remote-extra-",), "prefixes of request headers for extra fields of the user"
    )

    @model_validator(mode="after")
    def _name_something(self) -> Self:
        for name, values in self._lists().items():
            if not all(value.strip() for value in values):
                raise ValueError(f"--{name}: a name in the list is empty")
        return self

    def header_lists(self) -> dict[str, tuple[str, ...]]:
        """Return the lists by field of `RequestHeaderConfig`, a class that is not imported for --help."""
        lists = self._lists()
        return {field: tuple(map(str.strip, lists[name])) for field, name in REQUEST_HEADER_NAMES.items()}

    def _lists(self) -> dict[str, tuple[str, ...]]:
        return {name: getattr(self, name.replace("-", "_")) for name in REQUEST_HEADER_NAMES.values()}


def check_uid_headers(parsed: Parsed) -> Iterator[str]:
    """Yield errors about the uid headers, which need a feature gate."""
    headers = parsed[RequestHeaderOptions].requestheader_uid_headers
    if headers and not parsed[FeatureOptions].enabled(REMOTE_UID):
        yield f"--requestheader-uid-headers needs --feature-gates={REMOTE_UID}=true"
    elif headers and "x-remote-uid" not in map(str.lower, headers):
        yield "--requestheader-uid-headers: X-Remote-Uid must be among them, for API servers use it"
