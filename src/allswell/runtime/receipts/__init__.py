"""Receipts as files: `Receipts` is a folder of them, each replaced as a whole or not at all.

What a receipt says is `allswell.domain.receipt`; who writes one is `allswell.runtime.attempt`. `atomic` is how any
small file of ours is written, `home` what lies beside a store.
"""

from allswell.runtime.receipts.folder import Found, Receipts
from allswell.runtime.receipts.home import Home

__all__ = ["Found", "Home", "Receipts"]
