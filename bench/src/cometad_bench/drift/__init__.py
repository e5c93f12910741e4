"""The drift experiment: trials on controlled series, their tables and figures."""
