"""Searching files: ripgrep, or our own reader where it is not installed."""
