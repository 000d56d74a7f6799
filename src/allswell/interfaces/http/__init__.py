"""The watch over HTTP: one port for people, programs and agents that are not on this machine (ADR 57).

    listener.py          addresses, sockets, TLS; connections that dawdle; starting and stopping
    security.py          before any route: Host, Origin, key, limits; after it: the headers of every answer
    request_context.py   one call, as routes have it: the watch of the caller's key, and what was asked
    routing.py           how a route is declared: one line, from which OpenAPI is made too
    server.py            all routes, put together, and a server that has them
    mcp.py               /mcp: the tools of interfaces/mcp on this port

The other files are routes, by noun. They translate and decide nothing: what a key may do is decided behind the watch
that they are given, for each command and each look (`engine/access/gate.py`).
"""
