"""The code that README shows works as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from controller_manager.api.core import PODS
from controller_manager.api.resource import Key
from controller_manager.testing import Cluster, builders

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(word: str) -> dict[str, Any]:
    """The names that the Python block with `word` in it defines."""
    code = next(code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in code)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.virtual
async def test_the_test() -> None:
    await block("test_endpoints_appear")["test_endpoints_appear"]()


@pytest.mark.virtual
async def test_the_controller() -> None:
    specs = block("greeter-controller")["SPECS"]
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--greeting=hi", specs=specs)
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.settle()
        found = await cluster.client.get(PODS, Key("default", "a"))
        assert (found.metadata.annotations or {})["greeting"] == "hi"
