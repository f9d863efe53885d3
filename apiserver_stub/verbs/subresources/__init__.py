"""Subresources that are more than a part of their object: a view of it or an act upon it."""
