"""Export formats, one file each; `policy.export` holds the registry."""
