"""The durable, revisioned store of the API server: bytes by resource and key, each write one append to a log."""
