"""How objects of each kind are prepared for storage."""
