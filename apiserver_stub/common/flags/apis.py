"""The flag of the versions and resources of the API that are served."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pydantic import field_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import StringMap

_STABLE = re.compile(r"v\d+", re.ASCII)
_BETA = re.compile(r"v\d+beta\d+", re.ASCII)
_ALPHA = re.compile(r"v\d+alpha\d+", re.ASCII)
# In the order in which they count, the last most.
_STAGES: Mapping[str, Callable[[str], object]] = MappingProxyType({
    "api/all": lambda _: True,
    "api/ga": _STABLE.fullmatch,
    "api/beta": _BETA.fullmatch,
    "api/alpha": _ALPHA.fullmatch,
})  # fmt: skip
_VALUES = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class ApiOptions(Options):
    """The versions and resources of the API that are served."""

    title = "APIs"

    runtime_config: StringMap = flag(
        {},
        "versions and resources of the API to serve or not, as <group>/<version>[/<resource>]=true or false, or of a "
        "stage: api/all, api/ga, api/beta, api/alpha. Without it all stable versions are served, and no others. What "
        "depends on a feature gate needs that as well",
        metavar="api=true|false,...",
    )

    @field_validator("runtime_config")
    @classmethod
    def _are_apis(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for key, setting in value.items():
            if key not in _STAGES and key.count("/") not in (1, 2):
                raise ValueError(f"runtime-config invalid key {key}")
            if setting.lower() not in _VALUES or (key in _STAGES and setting.lower() not in ("true", "false")):
                raise ValueError(f"invalid value {key}={setting}")
            if key.count("/") == 2 and key != key.lower():
                raise ValueError(f"invalid key {key}: group/version/resource and resource is always lowercase plural")
        return value

    def serves(self, group: str, version: str, plural: str) -> bool:
        """Return whether `--runtime-config` enables a resource; the most specific setting applies.

        The core group is the empty string: its keys are `/v1` and `/v1/<resource>`.
        """
        served = bool(_STABLE.fullmatch(version))
        for stage, is_of in _STAGES.items():
            if stage in self.runtime_config and is_of(version):
                served = _VALUES[self.runtime_config[stage].lower()]
        for key in (f"{group}/{version}", f"{group}/{version}/{plural}"):
            if key in self.runtime_config:
                served = _VALUES[self.runtime_config[key].lower()]
        return served
