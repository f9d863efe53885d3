"""What the server knows of each kind: names, schema, defaults, validation and strategy; nothing of verbs or storage."""
