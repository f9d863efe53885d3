"""The process `cluster-controller-manager`, put together from the floors below."""
