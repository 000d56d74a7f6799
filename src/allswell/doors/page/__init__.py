"""The page: the whole night in a browser, drawn on the server, live, and without a build step (ADR 61).

    screen.py     how a screen is declared: a path, a template, the function that looks, and what makes it refresh
    screens.py    all screens, put together; a new one is a line there
    deeds.py      what can be done from the page: a form, and the route of the API that it is handed to
    entering.py   logging in by a link or a key, and logging out
    live.py       screens as they change, over Server-Sent Events
    drawing.py    where on a bar a moment lies; life.py and graph.py draw a task's life, and what needs what
    asking.py     questions as cards; output.py: the end of what attempts have printed
    query.py      what stands behind the question mark of an address
    rendering.py  templates, and the words that they may use
    app.py        the routes, who is let in, and the headers of each answer

`front.py` and its sisters look, one screen each. The page decides nothing: what is seen and done goes through the watch
of the key that its reader logged in with (`engine/gate.py`), as every route's does. What came from agents is text:
templates escape everything, and no script or style stands in a page (`Content-Security-Policy: default-src 'self'`).

To add a screen: a function `async (Call) -> Struct` that reads what the explanations tell, a template that extends
`layout` and fills the block `screen`, and a `PageScreen` in `screens.py`. It is live by that.
"""
