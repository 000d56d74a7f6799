"""How the throwaway server says that it cannot be had."""


class ServerFailed(RuntimeError):
    """The test server could not be found, made, started or stopped; the message holds the end of its log.

    Never an error of the code under test: what a client meets when the server is down comes from its driver.
    """
