"""Which features of this process are on."""

from typing import ClassVar

from controller_manager.options import Options


class FeatureOptions(Options):
    """Features that are not on, or can be off."""

    title: ClassVar[str] = "Features"
