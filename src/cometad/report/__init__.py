"""The report: the events a detector finds in a series, explained on one HTML page."""
