"""Calibration of the cost model: points (points.py), their times on a GPU (measure.py), the fit (fit.py)."""
