"""Certificates: what is issued, when a self-signed pair is kept, and how files are written."""

import stat
from datetime import timedelta

import pytest
from cryptography import x509

from controller_manager.base.clock import utc_now
from controller_manager.serving import tls
from controller_manager.serving.files import write_atomically


def subject(pair: tls.Pair) -> list[str]:
    return [str(one.value) for one in x509.load_pem_x509_certificate(pair.certificate).subject]


def test_a_client_certificate_names_its_owner_and_groups():
    ca = tls.make_ca("test-ca")
    leaf = tls.issue(ca, "admin", ("system:masters", "b"), client=True, days=10)
    found = x509.load_pem_x509_certificate(leaf.certificate)
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate))
    assert subject(leaf) == ["system:masters", "b", "admin"]
    assert timedelta(days=9) < found.not_valid_after_utc - utc_now() < timedelta(days=11)


def test_a_self_signed_pair_is_kept_while_it_serves(tmp_path):
    cert_file, key_file = tls.self_signed(tmp_path, "manager", ("localhost", "127.0.0.1"))
    first = cert_file.read_bytes()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert tls.self_signed(tmp_path, "manager", ("127.0.0.1",)) == (cert_file, key_file)
    assert cert_file.read_bytes() == first
    tls.self_signed(tmp_path, "manager", ("other.example",))
    assert cert_file.read_bytes() != first


@pytest.mark.parametrize("damage", ["garbage", "foreign key", "expiring", "missing"])
def test_a_self_signed_pair_that_serves_no_more_is_replaced(tmp_path, damage):
    cert_file, key_file = tls.self_signed(tmp_path, "manager", ("localhost",))
    soon = tls.issue(tls.make_ca("x"), "manager", hosts=("localhost",), days=3)
    match damage:
        case "garbage":
            cert_file.write_bytes(b"garbage")
        case "foreign key":
            key_file.write_bytes(soon.key)
        case "expiring":
            soon.write(cert_file, key_file)
        case _:
            key_file.unlink()
    before = cert_file.read_bytes()
    tls.server_context(*tls.self_signed(tmp_path, "manager", ("localhost",)))
    assert cert_file.read_bytes() != before


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two", 0o644)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", b"three")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "new"]
