"""How long a test waits for what another process, thread or server does, before it says that it did not happen.

On an idle machine all of these take milliseconds. The bound is there so that a test which fails says so itself, on a
machine that has much else to do too; it is under the limit that pytest sets for a whole test.
"""

SECONDS = 90.0
