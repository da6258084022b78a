"""May this call run? Mode and rules as values, how rules are written, what they match, and the decision."""
