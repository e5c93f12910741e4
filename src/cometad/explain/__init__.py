"""Which variables are behind an event, and what was expected instead.

In: a fitted detector, a series and an event. Out: an `Explanation`, one reason per variable, largest share first.
Always: the shares of an explanation sum to 1, and permuting the variables permutes it.
"""
