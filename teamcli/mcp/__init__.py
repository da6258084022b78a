"""The client for MCP servers."""
