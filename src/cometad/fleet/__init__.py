"""Many detectors, one for each entity of a fleet, fitted on this machine or on Ray and kept in one folder."""
