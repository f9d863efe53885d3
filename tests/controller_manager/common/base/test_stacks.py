"""Stacks of running code."""

import sys

from controller_manager.common.base import stacks
from controller_manager.common.base.stacks import Stack, running_stack


def fall(depth: int) -> Stack:
    return fall(depth - 1) if depth else running_stack(sys._getframe())


def test_deep_stack_keeps_its_innermost_frames() -> None:
    found = fall(2 * stacks.DEEPEST)
    assert len(found) == stacks.DEEPEST
    assert {frame.function for frame in found} == {"fall"}
    assert {frame.file for frame in found} == {__file__}
    assert found[0].first_line == fall.__code__.co_firstlineno == found[0].line - 1


def test_stack_is_cut_at_a_frame() -> None:
    assert [frame.function for frame in running_stack(sys._getframe(), within=sys._getframe())] == [
        "test_stack_is_cut_at_a_frame"
    ]
