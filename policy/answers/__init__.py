"""The parts of reading a model's answer; `policy.edits` puts them together."""
