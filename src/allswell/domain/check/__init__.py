"""The arithmetic of limits: rules that say, before anything runs, which figures cannot work together.

Each rule is a function over a plain description (scopes, retries, check-ins, steps, a worker) that yields findings. A
description is made of figures, each with its name and the place where it was written; so the same rules serve the
settings, a flow file, and whatever else has limits. They know nothing of files and formats.

An **error** is what will be refused, or what was asked for and can never happen. A **warning** runs, but not as the
figures say. A **note** is allowed and worth knowing. Runtime is safe in any case, because every scope is capped by what
is around it: what these rules find is not what will hang, but what will silently not be done.
"""
