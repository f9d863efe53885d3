"""The validation rules of the built-in kinds, one file per subject. `combine` joins small rules to larger ones."""
