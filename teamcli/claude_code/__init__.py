"""Claude Code's words and ours: the only place that knows how its names, fields, rules and settings translate."""
