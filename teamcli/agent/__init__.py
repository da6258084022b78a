"""The agent: one loop, its conversation, its tool pipeline, its permissions. Knows no team, no UI, no concrete tool."""
