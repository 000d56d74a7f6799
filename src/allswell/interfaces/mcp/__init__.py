"""The watch for agents over the Model Context Protocol: they claim, check in, ask and finish by calling tools (ADR 60).

    tools.py             the tools: what each is called, takes, answers and promises; one table for every transport
    arguments.py         what the tools take, and what each promises to clients
    handlers.py          what a tool call is carried out by: `WatchTools` on a watch, as a key shows it
    server.py            all of it as a server of the SDK, with what can be read, also on standard input and output
    proxy.py             standard input and output to a server elsewhere, without the SDK, which takes long to import

Over HTTP it is `/mcp` of `allswell serve` (interfaces/http/mcp.py), with the same keys, limits and rules as every
route. Nothing but server.py imports the SDK.
"""
