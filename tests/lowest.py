"""Prints the oldest versions of run-time dependencies that pyproject.toml allows, as requirements."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

for range_ in PROJECT["dependencies"]:
    print(re.sub(r">=([^,]+),.*", r"==\1", range_))
