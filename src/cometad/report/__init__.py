"""The report: the events a detector finds in a series, explained on one HTML page.

In: a fitted detector and a series. Out: contents as values, then one page without scripts that opens offline.
Always: the page names the variables of the explanation, in its order.
"""
