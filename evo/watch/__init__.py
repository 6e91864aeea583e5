"""Watching a run beside the campaign that writes it: in a terminal, or in a browser."""
