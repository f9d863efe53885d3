"""Deprecated: import `controller_manager.common.cel` instead; this alias goes with the next release."""

import warnings

from controller_manager.common.cel import *  # noqa: F403

warnings.warn("controller_manager.cel is now controller_manager.common.cel", DeprecationWarning, stacklevel=2)
