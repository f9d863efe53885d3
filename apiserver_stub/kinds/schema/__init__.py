"""Schemas as data, and functions that fit trees to them."""
