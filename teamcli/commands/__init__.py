"""Slash commands: one value each; help, completion and the README's table come from the list."""
