"""Durable files, the `.team/` directory and its lock, logs."""
