"""The page: the whole night in a browser, drawn on the server, live, and without a build step (ADR 61).

    screen.py     how a screen is declared (a path, a template, the function that looks, what refreshes it); templates
    timeline.py   where on a bar a moment lies, and a task's life
    questions.py  questions as cards, and the end of what attempts have printed
    app.py        routes, login, all screens (`SCREENS`), their live updates, what can be done, the headers of an answer

`tasks.py` and its sisters look, a noun each. The page decides nothing: what is seen and done goes through the watch
of the key that its reader logged in with (`engine/access/gate.py`), as every route's does. What came from agents is
text: templates escape everything, and no script or style stands in a page (`Content-Security-Policy: default-src
'self'`).

To add a screen: a function `async (Call) -> Struct` that reads what the explanations tell, a template that extends
`layout` and fills the block `screen`, and a `PageScreen` in `app.py`. It is live by that.
"""
