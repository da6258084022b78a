"""The sandbox that confines commands of agents."""
