"""The watch for agents over the Model Context Protocol: they claim, check in, ask and finish by calling tools (ADR 60).

    tools.py         the tools: what each is called, takes, answers and promises; one table for every transport
    arguments.py     what the tools take
    desk.py          what a tool call is carried out by: `WatchDesk` on a watch, as a key shows it
    attempt_desk.py  the same inside a supervised attempt, where one speaks for one's own lease alone
    resources.py     what can be read: a task, why it stands where it stands, its receipts
    told.py          answers and errors as a model is told them
    server.py        all of it as a server of the SDK
    stdio.py         that server on standard input and output
    proxy.py         standard input and output to a server elsewhere, without the SDK, which takes long to import

Over HTTP it is `/mcp` of `allswell serve` (doors/http/mcp.py), with the same keys, limits and rules as every route.
Nothing but server.py and stdio.py imports the SDK.
"""
