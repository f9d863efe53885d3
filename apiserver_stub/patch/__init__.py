"""Apply patches to trees: JSON patch, merge patch, strategic merge patch and server-side apply. Pure; inputs are never
changed.

Patches are applied recursively, so the decoder must limit the depth of its documents.
"""
