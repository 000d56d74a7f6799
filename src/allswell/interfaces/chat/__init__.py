"""Ways for a build's agents and its coordinator to talk: AgentChat over WebSocket, and plain standard input and output.

Both are a `Channel` (`allswell.build.merge`): receive, send, who.
"""
