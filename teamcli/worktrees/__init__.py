"""Isolated checkouts: members that work on their own branch, and how their work is merged."""
