"""Schemas as data, and trees fitted to them."""
