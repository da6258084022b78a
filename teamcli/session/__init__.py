"""A running session: the lead, its team, the event stream, the live policy."""
