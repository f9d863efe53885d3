"""Default values, as rows of field and value by kind."""
