"""Time as the rest of Allswell sees it: clocks to read it, and tasks that are sure to end."""
