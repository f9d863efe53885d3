"""Published root certificates, and files that are valid bundles."""

from pathlib import Path

import msgspec
import pytest

from controller_manager.common.api.core import ConfigMap
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.tls import make_ca
from controller_manager.framework import ConfigError
from controllers.root_ca_publisher import (
    ABOUT,
    DATA,
    DESCRIPTION,
    NAME,
    check,
    desired,
)
from controllers.shared.service_accounts import RootCAs, ServiceAccountOptions

PEM = make_ca("one", days=1).certificate.decode()
OTHER = make_ca("other", days=1).certificate.decode()


def published(data: dict[str, str], **annotations: str) -> ConfigMap:
    named = {name.replace("_", "/"): text for name, text in annotations.items()}
    metadata = {"namespace": "a", "name": NAME, "annotations": named, "labels": {"kept": "yes"}}
    return ConfigMap.decode(msgspec.json.encode({"metadata": metadata, "data": data}))


@pytest.mark.parametrize(
    ("current", "right"),
    [
        (published({DATA: PEM}, kubernetes_io="no description"), False),
        (published({DATA: PEM}), False),
        (published({DATA: OTHER}), False),
        (published({}), False),
    ],
)
def test_wrong_config_map_is_corrected(current: ConfigMap, right: bool) -> None:
    assert (desired("a", current, PEM) is None) is right


def test_correct_config_map_is_not_written() -> None:
    made = desired("a", None, PEM)
    assert made is not None
    assert (made.metadata.namespace, made.metadata.name, made.data) == ("a", NAME, {DATA: PEM})
    assert made.metadata.annotations == {DESCRIPTION: ABOUT}
    assert desired("a", made, PEM) is None


def test_foreign_metadata_is_preserved() -> None:
    theirs = msgspec.structs.replace(
        published({DATA: PEM}),
        metadata=msgspec.structs.replace(published({}).metadata, annotations={DESCRIPTION: "mine"}),
    )
    assert desired("a", theirs, PEM) is None
    changed = desired("a", published({DATA: OTHER, "more": "x"}, example_org="y"), PEM)
    assert changed is not None
    assert changed.data == {DATA: PEM}
    assert changed.metadata.annotations == {DESCRIPTION: ABOUT, "example/org": "y"}
    assert changed.metadata.labels == {"kept": "yes"}


@pytest.mark.flag("root-ca-file")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "can't be read: No such file or directory"),
        (b"", "holds no certificates in PEM"),
        (b"nonsense", "holds no certificates in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificates in PEM"),
        (b"\xff\xfe" + PEM.encode(), "holds no certificates in PEM"),
    ],
    ids=["missing", "empty", "nonsense", "garbage", "no text"],
)
def test_file_without_certificates_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        check(ServiceAccountOptions(root_ca_file=str(file)))
    assert str(refusal.value) == f"--root-ca-file: {file} {why}"


def test_bundle_follows_its_file_while_it_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(PEM)
    bundle = RootCAs(str(file), bytes, get_logger("test"))
    assert (bundle.text, bundle.changed()) == (PEM, False)
    file.write_text(f"# two of them\n{PEM}{OTHER}")
    assert bundle.changed()
    assert bundle.text == f"# two of them\n{PEM}{OTHER}"
    for broken in ("half of it", ""):
        file.write_text(broken)
        assert not bundle.changed()
    file.unlink()
    assert not bundle.changed()
    assert OTHER in bundle.text
    file.write_text(OTHER)
    assert bundle.changed()
    assert bundle.text == OTHER


def test_bundle_without_file_follows_client_authorities() -> None:
    trusted = [PEM]
    bundle = RootCAs("", lambda: trusted[-1].encode(), get_logger("test"))
    assert (bundle.text, bundle.changed()) == (PEM, False)
    trusted.append(OTHER)
    assert bundle.changed()
    assert bundle.text == OTHER
