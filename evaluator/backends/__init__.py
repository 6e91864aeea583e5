"""Evaluator backends: `cpu` (interpreter and model) here; others register beside it."""
