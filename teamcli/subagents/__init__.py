"""Sub-agents: born for one job, they report and are gone."""
