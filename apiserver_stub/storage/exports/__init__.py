"""Exports: the rows of a storage at one revision as lines of JSON, for import into any other storage.

The first line is the header (`export` is the version of the format, `id` names this export, `revision` is that of the
storage). Each further line is a row, the end of a part, or the end of the file:

    {"export":1,"id":"…","revision":4711,"at":"2026-01-01T00:00:00Z","crc":…}
    {"resource":"pods","key":"default/web","data":{…},"crc":…}
    {"resource":"events","key":"default/web.1","ttl":2400,"data":{…},"crc":…}
    {"resource":"secrets","key":"default/s","bytes":"azhzOmVuYzo…","crc":…}
    {"part":1,"records":1000,"sha256":"…"}
    {"end":true,"records":4711,"sha256":"…"}

`data` is the stored object with an empty resourceVersion; `bytes` is base64 for data that is not JSON, such as
encrypted objects; `ttl` is the remaining lifetime of a row in seconds. `crc` is the CRC-32 of its line up to
`,"crc":`, `sha256` the digest of everything in the file before its line.
"""
