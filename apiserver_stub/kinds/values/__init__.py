"""Formats of values: names, paths, PEM and trees. Nothing here depends on a kind."""
