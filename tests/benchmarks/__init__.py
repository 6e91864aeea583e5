"""Tests of what the benchmarks do beside running."""
