"""What the user and the project configure: settings, environment, trust, roles, skills, custom commands."""
