"""Benchmarks: each prints a figure, the ceiling measured in the same run, and their ratio."""
