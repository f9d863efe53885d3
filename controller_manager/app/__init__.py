"""The process `cluster-controller-manager`, built from the packages `framework` and `common`."""

ENTRY_POINTS = "cluster_controller_manager.controllers"
"""The entry point group for packages of controllers."""
