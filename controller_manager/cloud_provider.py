"""Deprecated: import `controller_manager.framework.cloud_provider` instead; this alias goes with the next release."""

import warnings

from controller_manager.framework.cloud_provider import *  # noqa: F403

warnings.warn(
    "controller_manager.cloud_provider is now controller_manager.framework.cloud_provider",
    DeprecationWarning,
    stacklevel=2,
)
