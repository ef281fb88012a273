"""The options of each script: its flags, and what a recipe gives it."""
