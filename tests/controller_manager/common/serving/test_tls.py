"""Certificates and atomic file writes."""

import stat
from datetime import timedelta

import pytest
from cryptography import x509

from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.files import write_atomically
from controller_manager.common.serving import tls


def subject(pair: tls.KeyPair) -> list[str]:
    return [str(one.value) for one in x509.load_pem_x509_certificate(pair.certificate).subject]


def test_client_certificate_has_name_and_groups():
    ca = tls.make_ca("test-ca")
    leaf = tls.issue(ca, "admin", ("system:masters", "b"), client=True, days=10)
    found = x509.load_pem_x509_certificate(leaf.certificate)
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate))
    assert subject(leaf) == ["system:masters", "b", "admin"]
    assert timedelta(days=9) < found.not_valid_after_utc - utc_now() < timedelta(days=11)


def test_file_is_replaced_atomically(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two", 0o644)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", b"three")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "new"]


def test_default_tls_1_2_ciphers_are_aead_and_forward_secret():
    ca = tls.make_ca("test-ca")
    context = tls.context_of(tls.issue(ca, "server", hosts=["localhost"]))
    offered = [each for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert offered
    assert all(each["aead"] and each["kea"] == "kx-ecdhe" for each in offered)
