"""Text for people and models: escaping, redaction, tags, tables."""
