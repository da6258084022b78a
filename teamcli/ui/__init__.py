"""What a person or a script sees. Only here: rich and prompt_toolkit."""
