"""placeholder until the branch that owns it is merged"""

from cometad.network.fast.threads import in_parts as in_parts
