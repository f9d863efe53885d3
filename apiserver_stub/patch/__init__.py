"""Patching trees: JSON patch, merge patch and strategic merge patch; pure, and the input is never changed."""
