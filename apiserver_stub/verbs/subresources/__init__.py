"""Subresources that are not part of their object: views (scale) and actions (binding, eviction, token)."""
