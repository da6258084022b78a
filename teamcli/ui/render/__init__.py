"""Turning events, Markdown and tables into text for the screen."""
