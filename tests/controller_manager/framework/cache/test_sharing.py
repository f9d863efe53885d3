"""Equal parts of cached objects are shared."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.apps import Deployment
from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import Container, Pod, PodSpec, PodStatus
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.framework.cache.indexer import Indexer

_TEXTS = st.sampled_from(("a", "b"))
_LABELS = st.none() | st.dictionaries(_TEXTS, _TEXTS)
_PODS = st.builds(
    lambda name, namespace, labels, images, node: Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels),
        spec=PodSpec(containers=tuple(Container(name=image) for image in images), node_name=node),
        status=PodStatus(phase=node, conditions=tuple(Condition(type=image, status=node) for image in images)),
    ),
    _TEXTS,
    _TEXTS,
    _LABELS,
    st.lists(_TEXTS, max_size=2),
    _TEXTS,
)


def decoded(obj: Object) -> Object:
    """Return a copy of the object from its own bytes, which shares nothing."""
    return type(obj).decode(obj.encode())


@given(st.lists(_PODS))
def test_sharing_changes_no_object(pods: list[Pod]) -> None:
    indexer: Indexer[Object] = Indexer()
    for pod in pods:
        indexer.put(decoded(pod))
    last = {(pod.metadata.namespace, pod.metadata.name): decoded(pod) for pod in pods}
    assert {(pod.metadata.namespace, pod.metadata.name): pod for pod in indexer} == last


def pod(name: str, image: str = "i") -> Object:
    meta = ObjectMeta(name=name, namespace="default", labels={"app": "web"})
    return decoded(Pod(metadata=meta, spec=PodSpec(containers=(Container(name=image),))))


def parts(obj: Object) -> tuple[int, int, int]:
    assert isinstance(obj, Pod)
    return id(obj.metadata.labels), id(obj.metadata.namespace), id(obj.spec.containers)


def test_equal_parts_are_shared() -> None:
    indexer: Indexer[Object] = Indexer()
    pods = [pod("one"), pod("two"), pod("three", image="other")]
    assert len({parts(each) for each in pods}) == 3
    for each in pods:
        indexer.put(each)
    assert parts(pods[0]) == parts(pods[1])
    assert parts(pods[1])[:2] == parts(pods[2])[:2]
    assert parts(pods[1])[2] != parts(pods[2])[2]
    changed = pod("one")
    indexer.put(changed)
    assert parts(changed) == parts(pods[0])


def running(name: str, began: str) -> Pod:
    ready = Condition(type="Ready", status="True", last_transition_time=began)
    status = PodStatus(phase="Running", pod_ip=name, start_time=began, conditions=(ready,))
    return Pod.decode(Pod(metadata=ObjectMeta(name=name), status=status).encode())


def test_equal_statuses_are_shared() -> None:
    indexer: Indexer[Pod] = Indexer()
    for name in "abc":
        indexer.put(Pod.decode(Pod(metadata=ObjectMeta(name=name)).encode()))
    pods = [
        running("a", "2026-01-01T00:00:00Z"),
        running("b", "2026-01-01T00:00:00Z"),
        running("c", "2026-01-01T00:00:01Z"),
    ]
    for each in pods:
        indexer.put(each)
    one, two, later = (each.status for each in pods)
    assert one.conditions is two.conditions
    assert one.start_time is two.start_time
    assert (one.pod_ip, two.pod_ip) == ("a", "b")
    assert one.conditions != later.conditions
    assert one.phase is later.phase


def test_raw_parts_are_not_shared() -> None:
    tree = {"metadata": {"name": "one"}, "spec": {"template": {"spec": {"containers": []}}, "selector": {}}}
    first = Deployment.decode(msgspec.json.encode(tree))
    second = Deployment.decode(msgspec.json.encode({**tree, "metadata": {"name": "two"}}))
    indexer: Indexer[Deployment] = Indexer()
    indexer.put(first)
    indexer.put(second)
    assert first.spec.template == second.spec.template
    assert first.spec.template is not second.spec.template
