"""Metric losses, activation regularizers and their schedules."""
