"""The same network, faster: everything here is tested against the readable definition in `cometad.network`."""
