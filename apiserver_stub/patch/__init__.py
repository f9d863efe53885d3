"""Patching trees: JSON patch, merge patch and strategic merge patch; pure, and the input is never changed.

What is handed in is of bounded depth (whoever decodes it sees to that), because patches are walked recursively.
"""
