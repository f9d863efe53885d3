"""The process `cluster-controller-manager`, put together from the floors below."""

ENTRY_POINTS = "cluster_controller_manager.controllers"
"""The group of entry points that name packages of controllers."""
