"""Names of functions in profiles."""

import json.decoder

from controller_manager.common.base.stacks import StackFrame
from controller_manager.common.serving.pprof.profile import Modules


def test_function_is_named_with_its_module() -> None:
    modules = Modules()
    assert modules.name(StackFrame("JSONDecoder.decode", json.decoder.__file__)) == "json.decoder.JSONDecoder.decode"
    assert modules.name(StackFrame("line 7", "/nowhere/else.py")) == "else.line 7"
    assert modules.name(StackFrame("builtins.str")) == "builtins.str"
