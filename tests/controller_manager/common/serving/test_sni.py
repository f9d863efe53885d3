"""Which certificate is chosen by server name or address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.serving import certificates, tls

EXPLICIT, OWN, WILD, LATER = range(4)
WANTED = [["Foo.example", "10.0.0.1", "::1"], [], ["*.example", "*.*.deep.test"], ["foo.example", "late.test"]]
SHOWN = [["ignored.test"], ["own.test", "foo.example", "*.own.test", "late.test"], ["b.ignored.test"], []]
TABLE = certificates.name_table(WANTED, SHOWN)


@pytest.mark.parametrize(
    ("server_name", "number"),
    [
        ("foo.example", EXPLICIT),
        ("FOO.example.", EXPLICIT),
        ("bar.example", WILD),
        ("a.bar.example", None),
        ("example", None),
        ("own.test", OWN),
        ("x.own.test", OWN),
        ("late.test", LATER),
        ("a.b.deep.test", WILD),
        ("a.deep.test", None),
        ("ignored.test", None),
        ("b.ignored.test", None),
        ("", None),
        ("..", None),
    ],
)
def test_certificate_by_server_name(server_name, number):
    assert certificates.by_name(TABLE, server_name) == number


@pytest.mark.parametrize(
    ("address", "number"),
    [
        ("10.0.0.1", EXPLICIT),
        ("::ffff:10.0.0.1", EXPLICIT),
        ("0:0::1", EXPLICIT),
        ("10.0.0.2", None),
        ("fe80::1%lo", None),
    ],
)
def test_certificate_by_address(address, number):
    assert certificates.by_address(TABLE, address) == number


LABEL = st.sampled_from(("a", "b", "*"))
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)


@given(st.lists(st.lists(NAME, max_size=3), max_size=3), st.lists(st.sampled_from("ab"), min_size=1, max_size=3))
def test_exact_name_precedes_wildcards_and_first_one_wins(wanted, labels):
    name = ".".join(labels)
    found = certificates.by_name(certificates.name_table(wanted, [[]] * len(wanted)), name)
    exact = [number for number, patterns in enumerate(wanted) if name in patterns]
    if exact:
        assert found == exact[0]
    elif found is not None:
        assert any("*" in pattern for pattern in wanted[found])


def test_certificate_names_are_its_dns_names():
    pair = tls.issue(tls.make_ca("ca"), "cn.test", hosts=("a.test", "*.b.test", "10.0.0.1"))
    assert certificates.names_of(pair.certificate) == ["cn.test", "a.test", "*.b.test"]


@pytest.mark.parametrize("common_name", ["10.0.0.1", "no domain!", "me@1234", "-a.test"])
def test_common_name_other_than_domain_is_ignored(common_name):
    assert certificates.names_of(tls.issue(tls.make_ca("ca"), common_name).certificate) == []


def test_malformed_certificate_raises_value_error():
    with pytest.raises(ValueError, match="PEM"):
        certificates.names_of(b"hello")
