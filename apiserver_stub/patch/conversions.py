"""Version conversions inside the synchronous steps of a write. A missing conversion interrupts the step, is awaited,
and the step is repeated. So the code that merges, compares and prunes stays synchronous.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import orjson

from apiserver_stub.common.offload import StepRunner
from apiserver_stub.kinds.resource_info import Converter
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.tree import Tree

T = TypeVar("T")

_MOST = 200  # conversions of one step


class Unconverted(Exception):
    """Interrupts a step: the tree must first be converted to a version."""

    def __init__(self, tree: Tree, api_version: str) -> None:
        super().__init__(api_version)
        self.tree = tree
        self.api_version = api_version


class Conversions:
    """The conversions of one request. The results are cached during an attempt. A step needs few: two for each version
    in managedFields, and some more for pruning.
    """

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._made: dict[tuple[str, bytes], bytes] = {}

    def convert(self, tree: Tree, api_version: str) -> Tree:
        """Return the object in a version; it is a new tree unless it already has that version. Raises `Unconverted`."""
        if tree["apiVersion"] == api_version:
            return tree
        found = self._made.get(_key(tree, api_version))
        if found is None:
            raise Unconverted(tree, api_version)
        converted: Tree = orjson.loads(found)
        return converted

    def interrupting(self, run: StepRunner) -> StepRunner:
        """Return the runner for the steps of a new attempt. It repeats a step until no conversion interrupts it, so a
        step must be repeatable until it ends.
        """
        self._made.clear()
        return partial(self._repeat, run)

    async def _repeat(self, run: StepRunner, step: Callable[[], T]) -> T:
        for _ in range(_MOST):
            try:
                return await run(step)
            except Unconverted as needed:
                (converted,) = await self._converter([needed.tree], needed.api_version)
                self._made[_key(needed.tree, needed.api_version)] = orjson.dumps(converted)
        raise InternalError(f"the object needs more than {_MOST} conversions")


def _key(tree: Tree, api_version: str) -> tuple[str, bytes]:
    return api_version, orjson.dumps(tree)
