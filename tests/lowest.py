"""Prints the oldest versions of run-time dependencies and extras that pyproject.toml allows, as requirements."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

for range_ in (
    *PROJECT["dependencies"],
    *(one for extra in ("cbor", "otel", "testing") for one in EXTRAS[extra]),
):
    print(re.sub(r">=([^,]+),.*", r"==\1", range_))
