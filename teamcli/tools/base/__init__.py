"""What every tool is made of: its shape, its checked input, and what it works with."""
