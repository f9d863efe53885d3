"""Whose pods are whose: the selectors of all autoscalers, found by the labels of a pod; pure."""

from collections.abc import Iterable, Iterator

from controller_manager.api.core import Pod
from controller_manager.api.resource import Key
from controller_manager.api.selectors import LabelSelector

_Place = tuple[str, str, str]


class Claims:
    """Each selector stands at a label that all its pods must have; one that names none stands at its namespace."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._places: dict[_Place, set[Key]] = {}

    def put(self, key: Key, selector: LabelSelector) -> None:
        """The target of the autoscaler `key` has the pods that `selector` finds, from now on."""
        if self._selectors.get(key) == selector:
            return
        self.drop(key)
        self._selectors[key] = selector
        for place in _places(key.namespace, selector):
            self._places.setdefault(place, set()).add(key)

    def drop(self, key: Key) -> None:
        """That autoscaler is gone."""
        selector = self._selectors.pop(key, None)
        for place in _places(key.namespace, selector) if selector is not None else ():
            there = self._places[place]
            there.discard(key)
            if not there:
                del self._places[place]

    def of(self, pods: Iterable[Pod]) -> list[Key]:
        """The autoscalers whose targets have any of these pods, in order."""
        return sorted({key for pod in pods for key in self._claimants(pod)})

    def _claimants(self, pod: Pod) -> Iterator[Key]:
        space, labels = pod.metadata.namespace, pod.metadata.labels or {}
        for place in ((space, "", ""), *((space, name, value) for name, value in labels.items())):
            yield from (key for key in self._places.get(place, ()) if self._selectors[key].matches(labels))


def _places(namespace: str, selector: LabelSelector) -> list[_Place]:
    exact = [each for each in selector.requirements if each.operator == "in"]
    if not exact:
        return [(namespace, "", "")]
    telling = max(exact, key=lambda each: (-len(each.values), len(each.values[0])))
    return [(namespace, telling.key, value) for value in telling.values]
