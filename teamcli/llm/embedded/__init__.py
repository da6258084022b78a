"""The small embedded model that works without an API key."""
