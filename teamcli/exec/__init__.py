"""Running commands: the command host, its supervisor, output."""
