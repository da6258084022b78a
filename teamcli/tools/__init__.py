"""The tools: one module each, and a catalogue that lists them."""
