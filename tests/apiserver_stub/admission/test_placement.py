"""Tolerations in annotations, selectors as text, and pull policies changed by other plugins."""

import pytest

from apiserver_stub.admission import Attributes
from apiserver_stub.admission.plugins.always import check_pulls
from apiserver_stub.admission.plugins.placement import selector_of, tolerations_of
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.serving.authentication import User


@pytest.mark.parametrize("text", ["{}", "a", '[{"key":1}]', '[{"tolerationSeconds":"3"}]', "[1]", '"a"', "[" * 10000])
def test_malformed_toleration_annotation_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of tolerations"):
        tolerations_of(text)


@pytest.mark.parametrize(
    ("text", "labels"),
    [("", {}), ("a=b", {"a": "b"}), (" a = b , c= ", {"a": "b", "c": ""}), ("a=b,a=c", {"a": "c"})],
)
def test_selector_text_is_parsed(text: str, labels: dict[str, str]) -> None:
    assert selector_of(text) == labels


@pytest.mark.parametrize("text", ["a", "a b", "a==b", "a!=b", "a=b,", "a in (b)", "=b", "-a=b", "a=b c", "a=b=c"])
def test_malformed_selector_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        selector_of(text)


async def test_reverted_pull_policy_is_rejected() -> None:
    kind = built_in().find("", "v1", "pods")
    assert kind is not None
    spec = {
        "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}],
        "ephemeralContainers": [{"name": "e", "image": "i", "imagePullPolicy": "Never"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "image": {"reference": "r"}}],
    }
    attributes = Attributes("create", kind, "n", "p", "", {"spec": spec}, None, User("u"))
    with pytest.raises(UnknownError) as refusal:
        await check_pulls(attributes)
    assert refusal.value.message == (
        '[pods "p" is forbidden: spec.ephemeralContainers[0].imagePullPolicy: Unsupported value: "Never": supported '
        'values: "Always", pods "p" is forbidden: spec.volumes[1].image.pullPolicy: Unsupported value: "": supported '
        'values: "Always"]'
    )
