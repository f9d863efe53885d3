"""The handler chain and the pages of the server itself (health, version, metrics, discovery)."""
