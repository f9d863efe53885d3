"""Helpers that several controllers share."""
