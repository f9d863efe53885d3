"""Prepare objects of each kind for storage."""
