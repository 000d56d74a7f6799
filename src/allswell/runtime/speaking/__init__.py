"""How an agent and its supervisor speak: `words` is what can be said, `client` the agent's side of the socket.

Apart from the rest of the attempt, so that `allswell checkin` starts at once.
"""
