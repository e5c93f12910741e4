"""The same network, faster: every function here is tested against the readable form in the folder above."""
