"""The same network, faster: everything here is tested against the readable definition in `cometad.network`.

In and out: as there. Do not reorder additions: the bits of saved detectors depend on them.
"""
