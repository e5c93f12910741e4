"""Fleets: one detector per entity, fitted on this machine or on Ray and kept in one folder."""
