"""The forms of permission rules: what the pattern of a rule is compared with."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    ANY = "any"
    """`bash`: every call of the tool."""
    PATTERN = "pattern"
    """`bash(git status)`, `edit_file(src/**)`"""
    PREFIX = "prefix"
    """`bash(git log:*)`"""
    TEXT = "text"
    """`bash(="git log")`: this text and nothing else."""
    WILDCARD = "wildcard"
    """`Bash(git * main)`: commands with any text in place of each star."""
    READS = "reads"
    """`Read(.env)`, for commands such as `cat .env`. Only in rules that ask or deny."""
    FIELD = "field"
    """`Bash(run_in_background:true)`: calls with this value in a field. Only in rules that ask or deny."""
    NEVER = "never"
    """`WebFetch`, `Write(src/**)`: a rule of Claude Code that matches nothing here."""
