"""Strict parsing of the ConfigMap extension-apiserver-authentication."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.app.access.delegated_auth import PublishedAuthentication, read_published
from controller_manager.common.serving.authentication import RequestHeaderConfig
from controller_manager.common.serving.tls import make_ca

PEM = make_ca("clients").certificate


def test_complete_config_map_is_read():
    data = {
        "client-ca-file": PEM.decode(),
        "requestheader-client-ca-file": f"\n{PEM.decode()}\n",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User", " X-Second "]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "of-another-component": "{",
    }
    rules = RequestHeaderConfig(
        ("front-proxy-client",),
        ("X-Remote-User", "X-Second"),
        ("X-Remote-Uid",),
        ("X-Remote-Group",),
        ("X-Remote-Extra-",),
    )
    assert read_published(data) == PublishedAuthentication(PEM.strip(), PEM.strip(), rules)


@pytest.mark.parametrize("data", [{}, {"client-ca-file": "", "requestheader-allowed-names": ""}])
def test_empty_config_map_is_read(data):
    assert read_published(data) == PublishedAuthentication(b"", b"", RequestHeaderConfig())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("client-ca-file", "hello"),
        ("requestheader-client-ca-file", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
        ("requestheader-allowed-names", "front"),
        ("requestheader-allowed-names", '"front"'),
        ("requestheader-allowed-names", '{"front": 1}'),
        ("requestheader-allowed-names", "null"),
        ("requestheader-allowed-names", '["front", 1]'),
        ("requestheader-allowed-names", '["front", ""]'),
        ("requestheader-username-headers", "[" * 100_000),
    ],
)
def test_malformed_key_is_named_in_error(key, text):
    with pytest.raises(ValueError, match=f"the ConfigMap kube-system/extension-apiserver-authentication: {key} "):
        read_published({"client-ca-file": PEM.decode(), key: text})


@given(st.dictionaries(st.sampled_from(["client-ca-file", "requestheader-allowed-names"]), st.text(max_size=30)))
def test_any_config_map_is_read_or_refused(data):
    with suppress(ValueError):
        assert isinstance(read_published(data), PublishedAuthentication)
