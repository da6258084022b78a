"""The team: messages and the bus that carries them, the roster, teammates and the protocols between them."""
