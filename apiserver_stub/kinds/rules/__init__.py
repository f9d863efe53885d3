"""The rules of the built-in kinds, one file per subject: tables of small rules, put together by `combine`."""
