"""Finds anomalies in multivariate time series, live, and says which variables caused them."""
