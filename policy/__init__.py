"""Proposes rewrites, remembers what they earned, learns from it."""
