"""The names of places."""

import json.decoder

from controller_manager.base.stacks import Frame
from controller_manager.serving.pprof.profile import Modules


def test_a_function_is_named_with_its_module() -> None:
    modules = Modules()
    assert modules.name(Frame("JSONDecoder.decode", json.decoder.__file__)) == "json.decoder.JSONDecoder.decode"
    assert modules.name(Frame("line 7", "/nowhere/else.py")) == "else.line 7"
    assert modules.name(Frame("builtins.str")) == "builtins.str"
