"""The kinds the server knows: names, schema, defaults, validation and strategy; nothing of verbs or storage."""
