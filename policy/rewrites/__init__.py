"""The catalogue of kernel rewrites: typed, composable transformations of a candidate's source."""
