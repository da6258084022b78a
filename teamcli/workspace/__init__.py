"""The user's files: where agents may read and write, and how."""
