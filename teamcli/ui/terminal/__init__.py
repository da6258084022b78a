"""The interactive terminal: prompt, questions, status line."""
