"""What attempts leave behind: receipts, snapshots, and the files of a flow's steps."""
