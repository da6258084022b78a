"""The tools of MCP servers as the pipeline sees them: called directly, or found with `tool_search`."""
