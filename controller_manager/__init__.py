"""A controller-manager framework in pure asyncio; import from its sub-packages, nothing lives here."""
