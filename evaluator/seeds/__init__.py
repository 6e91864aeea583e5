"""Where a first correct kernel comes from when a task brings none."""
