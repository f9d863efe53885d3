"""Plain YAML is read, and other YAML is refused."""

import pytest
import yaml

from controller_manager.common.base.plain_yaml import NotPlain, read_yaml

LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 64))
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 64))


@pytest.mark.parametrize(
    "text",
    ["", "a", "a: [1, 2.5, yes, ~, 2026-11-20]", "a: &x {b: 1}\nc: {<<: *x, d: *x}", "{a: 1, a: 2}", b"\xff\xfea\x00"],
)
def test_plain_yaml_equals_safe_load(text):
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "it stands for more than 100000 values"),
        (MERGES, "it stands for more than 100000 values"),
        ("a: &a [*a]", "it stands for more than 100000 values"),
        ("[" * 20_000, "it is nested too deeply"),
        ("{a: " * 5_000, "it is nested too deeply"),
        ("a: 1\nb: !!python/object/apply:os.system [secret]", "line 2: could not determine a constructor for the tag"),
        ("a: !secret", "line 1: could not determine a constructor for the tag"),
        ("a: *secret", "line 1: found undefined alias"),
        ('a: "secret\\q"', "line 1: found unknown escape character"),
        ("a: secret: b", "line 1: mapping values are not allowed here"),
        ("a: {", "line 1: expected the node content"),
        ("a: 1\n---\nsecret: 2", "line 2: found another document"),
        ("? [secret]\n: 1", "line 1: found unhashable key"),
        ("a: secret\x07", "it is no text that YAML can be"),
        (b"secret\xff", "it is no text that YAML can be"),
        (f"a: {'9' * 5000}", "a value in it is not what it looks like"),
        ("a: 2026-99-99", "a value in it is not what it looks like"),
        ("a: !!bool secret", "a value in it is not what it looks like"),
        ("a: !!timestamp secret", "a value in it is not what it looks like"),
        ("a: !!int ''", "a value in it is not what it looks like"),
        ("a: !!binary sécret", "line 1: failed to convert base64 data into ascii"),
    ],
    ids=range(21),
)
def test_other_yaml_is_refused_with_reason(text, why):
    with pytest.raises(NotPlain) as refusal:
        read_yaml(text)
    assert str(refusal.value) == why


def test_duplicate_keys_are_refused_on_request():
    assert read_yaml("{a: {b: 1}, b: 1}", unique_keys=True) == {"a": {"b": 1}, "b": 1}
    with pytest.raises(NotPlain, match=r"^line 3: a key is there twice$"):
        read_yaml("a:\n  b: 1\n  b: 2\n", unique_keys=True)
