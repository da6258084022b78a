"""The task board: shared work that anyone can read with `cat`."""
