"""The report: what a detector finds in a series, on one HTML page."""
