"""Exports: the rows of a storage at one revision as lines of JSON, from which any other storage is filled.

The first line is the header (`export` is the version of the format, `id` names this export, `revision` is that of the
storage), each other one a row, the end of a part, or the end of all:

    {"export":1,"id":"…","revision":4711,"at":"2026-01-01T00:00:00Z","crc":…}
    {"resource":"pods","key":"default/web","data":{…},"crc":…}
    {"resource":"events","key":"default/web.1","ttl":2400,"data":{…},"crc":…}
    {"resource":"secrets","key":"default/s","bytes":"azhzOmVuYzo…","crc":…}
    {"part":1,"records":1000,"sha256":"…"}
    {"end":true,"records":4711,"sha256":"…"}

`data` is the object as it is kept, with an empty resourceVersion; `bytes` is base64 of what is no JSON, encrypted
objects above all; `ttl` are the seconds that a row had left to live. `crc` is the CRC-32 of its line up to
`,"crc":`, `sha256` the digest of everything in the file before its line.
"""
