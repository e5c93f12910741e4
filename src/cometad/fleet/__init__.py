"""Fleets: one detector per entity, fitted on this machine or on Ray and kept in one folder.

In: a table with a column of entities. Out: packs of saved detectors and a journal; scores and a page of all entities.
Equal to the bit: any engine and any number of workers; a killed run goes on where it was.
"""
