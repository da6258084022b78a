"""The screenshots of the documentation, made from the real program: `make pictures` writes docs/pictures/*.svg."""
