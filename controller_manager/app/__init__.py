"""Floor 7: the process `cluster-controller-manager`, put together from the floors below."""
